"""Which settings there are: one file, `tarry.toml` or `[tool.tarry]` in pyproject.toml, each also as a variable.

    store                          TARRY_STORE
    [master] pid_file              TARRY_MASTER__PID_FILE
    [pools.default] workers        TARRY_POOLS__DEFAULT__WORKERS

Inside the program, durations are whole microseconds (seconds where it says so), sizes bytes, and paths absolute.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from tarry.defaults import Defaults
from tarry.errors import ConfigError
from tarry.kinds import DURATION, FROM_0
from tarry.kinds import number as _number
from tarry.model.duration import DAY, HOUR, MINUTE, SECOND, microseconds
from tarry.model.limit import QUEUE, Limit, limited
from tarry.model.log_target import NAMES, log_target
from tarry.model.size import octets
from tarry.settings import Kind, Source, line_of, override, read_file, section

FILES = ("tarry.toml", "pyproject.toml")
DEFAULT_STORE = "sqlite:///tarry.db"

_SQLITE = "sqlite:///"


def _flag(text: str) -> Any:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)


def _table(text: str) -> Any:
    """`{ min = 1 }` as in the file, or JSON."""
    if not text.startswith("{"):
        return _number(text)
    try:
        return tomllib.loads(f"it = {text}")["it"]
    except tomllib.TOMLDecodeError:
        return json.loads(text)


def _list(text: str) -> Any:
    return json.loads(text) if text[:1] in "[{" else [part.strip() for part in text.split(",")]


def _names(text: str) -> Any:
    return text if text == "*" else _list(text)


def _shares(text: str) -> Any:
    if text == "strict":
        return text
    return [_number(part) if isinstance(part, str) else part for part in _list(text)]


def _urls(text: str) -> Any:
    # A URL may have commas of its own, between the hosts of a cluster.
    return _list(text) if text.startswith("[") else re.split(r",\s*(?=[a-z][a-z0-9+]*://)", text)


def _app(written: str) -> str:
    if not re.fullmatch(r"[\w.]+:[\w.]+", written):
        raise ValueError("no module and name")
    return written


def _store(written: str | list[str]) -> str | list[str]:
    urls = [written] if isinstance(written, str) else written
    if not all(re.match(r"[a-z][a-z0-9+]*://", url) for url in urls):
        raise ValueError("no URL")
    return urls if len(urls) > 1 else urls[0]


def _lease(written: float | str) -> int:
    lease = microseconds(written)
    if lease < 2 * SECOND:
        raise ValueError("shorter than a worker's extensions can be sure to reach")
    return lease


def _rate(written: str) -> str:
    limited(None, written)
    return written


def _log(written: str) -> str:
    log_target(written)
    return written


def _recipients(text: str) -> Any:
    # A URL may have commas of its own.
    return _list(text) if text.startswith("[") else re.split(r",\s*(?=[a-z][a-z0-9+.-]*://|[^,\s/@]+@)", text)


def _share(written: str) -> float:
    if not re.fullmatch(r"[1-9]\d?%|100%", written):
        raise ValueError("no share of a whole")
    return int(written[:-1]) / 100


def _some_octets(written: int | str) -> int:
    size = octets(written)
    if size < 1:
        raise ValueError("nothing would fit")
    return size


def _output(written: int | str) -> int:
    size = octets(written)
    if size > 1_000_000:
        raise ValueError("more than the store should be given ten times a second")
    return size


class Unshown(dict[str, Any]):
    """Settings that may hold secrets."""

    def __repr__(self) -> str:
        return f"<{', '.join(self)}>"


class Sealed:
    """A setting that may hold secrets, as it was written: who needs it reads `value`, and says what is wrong there."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sealed) and self.value == other.value

    def __hash__(self) -> int:
        return hash(repr(self.value))

    def __repr__(self) -> str:
        return "<sealed>"


_Text = Annotated[str, Meta(min_length=1)]
_Place = Annotated[str, Meta(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/[^\x00\n]*)$")]
_From1 = Annotated[int, Meta(ge=1)]
_Duration = int | float | str

# No Meta(pattern=...) here: msgspec 0.22 frees a pattern that stands in a union once too often, and crashes.
APP = Kind('a module and a name in it, such as "shop.jobs:app"', str, _app)
STORE = Kind(
    f'a URL such as "{DEFAULT_STORE}", or a list of them',
    str | Annotated[list[str], Meta(min_length=1)],
    _store,
    _urls,
)
LEASE = Kind('a duration of 2 seconds or more, such as "15s"', _Duration, _lease, _number)
SECONDS = Kind(DURATION.expected, _Duration, lambda written: microseconds(written) / SECOND, _number)
SIZE = Kind('a size such as 65536 (bytes), "64KB" or "1MiB"', int | str, octets, _number)
SOME_SIZE = Kind('a size of 1 byte or more, such as 65536, "64KB" or "1MiB"', int | str, _some_octets, _number)
OUTPUT = Kind('a size of at most 1MB such as "8KB", or 0 for none', int | str, _output, _number)
RATE = Kind('a rate such as "100/s", "10/m" or "5/2h"', str, _rate)
FROM_1 = Kind("a whole number of 1 or more", _From1, spelled=_number)
FILE = Kind("the path of a file", _Text, Path)
DIRECTORY = Kind('the path of a directory, or "" for none', str, lambda written: Path(written) if written else None)
LOG = Kind(
    '"stderr", "syslog", "journal", a URL such as "syslog://host:514", or the path of a file', _Text, _log, names=NAMES
)
FORMAT = Kind('"text" or "json"', Literal["text", "json"], spelled=str.lower, names=("text", "json"))
LEVEL = Kind(
    '"debug", "info", "warning" or "error"',
    Literal["debug", "info", "warning", "error"],
    spelled=str.lower,
    names=("debug", "info", "warning", "error"),
)
QUEUES = Kind(
    '"*", a list of names such as ["default", "mail"], or weights such as { critical = 5, default = 3 }',
    Literal["*"] | Annotated[list[_Text], Meta(min_length=1)] | Annotated[dict[_Text, _From1], Meta(min_length=1)],
    spelled=_names,
)
SHARES = Kind(
    'three whole numbers of 1 or more such as [5, 3, 2], or "strict"',
    Literal["strict"] | tuple[_From1, _From1, _From1],
    spelled=_shares,
)
FLAG = Kind("true or false", bool, spelled=_flag)
TASKS = Kind('a table for each HTTP task, as in [tasks."order.timeout"]', dict[_Text, Any], Unshown, _table)
PLACES = Kind('a list of places such as ["env:ORDER_SECRET", "file:/run/secrets/order"]', list[_Place], spelled=_list)
ALLOW = Kind('a list of networks such as ["10.0.0.0/8"]', list[_Text], spelled=_list)

SEALED = Kind("a setting", Any, Sealed)
RECIPIENTS = Kind("a list of recipients", Any, Sealed, _recipients)
SCHEMES = Kind('a list of schemes such as ["slack"]', list[_Text], spelled=_list)
SHARE = Kind('a share such as "90%"', str, _share)
TEXT = Kind("a text", str)


class Workers(Struct, frozen=True):
    """The bounds of a pool that follows its backlog."""

    min: Annotated[int, FROM_1] = 1
    max: Annotated[int, FROM_1] = 0
    calm: Annotated[float, SECONDS] = 30.0
    """Seconds that fewer must have done before one leaves."""


WORKERS = Kind(
    "a whole number of 1 or more, or bounds such as { min = 1, max = 8 }", _From1, spelled=_table, table=Workers
)


class Master(Struct, frozen=True):
    """[master]: the process that looks after the others."""

    pid_file: Annotated[Path, FILE] = Path("run/tarry.pid")
    term_grace: Annotated[float, SECONDS] = 8.0
    """Seconds from TERM until the workers are killed."""
    log: Annotated[str, LOG] = "stderr"
    """`stderr`, `syslog`, `journal`, a URL of these, or the absolute path of a file."""
    log_format: Annotated[Literal["text", "json"], FORMAT] = "text"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], LEVEL] = "info"
    reload_timeout: Annotated[float, SECONDS] = 0.0
    """Seconds that replaced workers have to finish what they run; 0: as long as it takes."""
    boot_timeout: Annotated[float, SECONDS] = 60.0
    """Seconds in which a process has to be ready."""
    watch: Annotated[bool, FLAG] = False
    """Whether to reload when the configuration or the app's files change."""


class Pool(Struct, frozen=True):
    """[pools.NAME]: worker processes that serve the same queues with the same settings."""

    name: str = "default"
    queues: Annotated[Literal["*"] | list[str] | dict[str, int], QUEUES] = "*"
    """All, or these, or these by weight."""
    workers: Annotated[int | Workers, WORKERS] = 1
    """Processes: so many, or within these bounds as many as the backlog needs."""
    threads: Annotated[int, FROM_0] = 1
    """Sync jobs at once in a process; 0 only while `async_` is more."""
    async_: Annotated[int, FROM_0] = 100
    """Async jobs at once in a process."""
    shares: Annotated[Literal["strict"] | tuple[int, int, int], SHARES] = (5, 3, 2)
    """How the bands of high, normal and low priority share starts."""
    lease: Annotated[int, LEASE] = 15 * SECOND
    kill_after: Annotated[float, SECONDS] = 0.5
    """Seconds that a job has to end once its timeout or its cancel broke in on it."""
    keep_output: Annotated[int, OUTPUT] = 8_000
    """Bytes of what each job prints and logs; 0: none is kept."""
    max_jobs: Annotated[int, FROM_0] = 100_000
    """A worker that ran so many is replaced; 0: never. As for age and memory, up to a tenth less, by chance."""
    max_age: Annotated[int, DURATION] = HOUR
    max_memory: Annotated[int, SIZE] = 0
    kill_memory: Annotated[int, SIZE] = 0
    """Bytes at which a worker is killed at once; 0: twice `max_memory`, if that is set."""

    @property
    def bounds(self) -> Workers:
        """How few and how many workers there may be; both are one number unless it follows the backlog."""
        workers = self.workers
        return workers if isinstance(workers, Workers) else Workers(workers, workers)

    @property
    def follows(self) -> bool:
        """The count goes by the backlog."""
        return isinstance(self.workers, Workers)


class Client(Struct, frozen=True):
    """[client]: how jobs are enqueued."""

    timeout: Annotated[float, SECONDS] = 5.0
    """Seconds that an enqueue takes at most, the wait for its turn and the call to the store together."""
    outbox: Annotated[Path | None, FILE] = None
    """Where jobs are kept while the store is away; None: the enqueue fails then."""
    outbox_bytes: Annotated[int, SOME_SIZE] = 64_000_000


class Keep(Struct, frozen=True):
    """How long finished jobs of a queue are kept, in microseconds, and how many bytes of them."""

    done: Annotated[int, DURATION] = HOUR
    dead: Annotated[int, DURATION] = 30 * DAY
    bytes: Annotated[int, SIZE] = 64_000_000


class Queue(Struct, frozen=True):
    """[queues.NAME]."""

    keep: Keep = Keep()
    limit: Annotated[int | None, FROM_0] = None
    """Jobs of the queue that run at once, over all hosts."""
    rate: Annotated[str | None, RATE] = None
    """How many start in a period, over all hosts, as written."""


class Push(Struct, frozen=True):
    """[push]: how HTTP tasks are delivered."""

    allow: Annotated[list[str], ALLOW] = []
    """Networks and addresses that may be reached besides the public ones."""
    secrets: Annotated[list[str], PLACES] = []
    """From where tasks that are registered at run time may have secrets; those of the file may from
    anywhere."""
    ca: Annotated[Path | None, FILE] = None
    """A file of certificates (PEM) that are trusted besides the system's."""
    log: Annotated[Path | None, DIRECTORY] = None
    """Of request.log, notify.log and error.log; None: there are none."""


class Alerts(Struct, frozen=True):
    """[alerts]: who is told when something is wrong, and from when on it is. `tarry.alert.settings` reads the sealed.

    Durations in microseconds; 0 for `oldest`, `latency` and `dead`: that is not told.
    """

    to: Annotated[Sealed, RECIPIENTS] = Sealed([])
    """Who is told of everything."""
    channels: Annotated[list[str], SCHEMES] = []
    """Of which schemes a task's own `alert` may name channels."""
    smtp: Annotated[Sealed, SEALED] = Sealed("")
    from_: Annotated[str, TEXT] = ""
    secret: Annotated[Sealed, SEALED] = Sealed("")
    """What signs to webhooks, or several."""
    group: Annotated[int, DURATION] = 30 * SECOND
    """What comes up within it goes into one message."""
    every: Annotated[int, DURATION] = 5 * MINUTE
    """A recipient gets at most one message in this time."""
    oldest: Annotated[int, DURATION] = 5 * MINUTE
    """A queue is stuck when a job has been ready for longer."""
    latency: Annotated[int, DURATION] = SECOND
    """A store is slow when the least question takes longer."""
    memory: Annotated[float, SHARE] = 0.9
    """Of its own maximum."""
    dead: Annotated[int, FROM_0] = 1
    """Jobs of one task within `every`."""


class Config(Struct, frozen=True):
    """All settings, defaults filled in."""

    app: Annotated[str | None, APP] = None
    store: Annotated[str | list[str] | None, STORE] = None
    """As given, relative paths made absolute; None: not given. `stores` fills in the default."""
    max_body: Annotated[int, SOME_SIZE] = 2**20
    client: Client = Client()
    defaults: Defaults = Defaults()
    master: Master = Master()
    pools: dict[str, Pool] = field(default_factory=lambda: {"default": Pool()})
    queues: dict[str, Queue] = {}
    tasks: Annotated[dict[str, Any], TASKS] = {}
    """HTTP tasks by name, as written: `tarry.push.endpoint.settings` reads them."""
    push: Push = Push()
    alerts: Alerts = Alerts()
    directory: Path = Path()
    """Where the file is, or else the working directory: relative paths start here."""
    file: Path | None = None

    @property
    def stores(self) -> list[str]:
        """The URLs of the shards, one or more."""
        store = self.store or _settled_url(DEFAULT_STORE, self.directory)
        return [store] if isinstance(store, str) else store

    def place(self, *keys: str) -> str:
        """Where that setting stands, as complaints name it: `tarry.toml:12`."""
        source = self.file and read_file(self.file, self.file.name)
        line = source and line_of(source.text, source.within + keys)
        return f"{source.shown}:{line}" if source and line else "settings"

    def keep(self, queue: str) -> Keep:
        """How long finished jobs of that queue are kept, also if it has no section of its own."""
        return self.queues.get(queue, Queue()).keep

    @property
    def limits(self) -> dict[str, Limit]:
        """The limits of queues, by name."""
        found = {QUEUE + name: limited(queue.limit, queue.rate) for name, queue in self.queues.items()}
        return {name: limit for name, limit in found.items() if limit is not None}


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ, directory: Path | None = None) -> Config:
    """The settings of the file at `path`, or else of the first of FILES in `directory` (the working directory if None)
    that has any, and of variables, which come first; ConfigError for what is unknown, wrong or cannot be read."""
    home = (directory or Path.cwd()).absolute()
    file, source = _given(home / path, str(path)) if path else _found(home)
    home = file.parent if file else home
    table = source.table()
    override(table, Config, environ, source)
    config = section(Config, table, (), source)
    return _settled(_checked(config, source), home, file)


def pid_file(
    path: Path | None = None, environ: Mapping[str, str] = os.environ, directory: Path | None = None
) -> tuple[Path, ConfigError | None]:
    """`load(...).master.pid_file`; also where other settings are wrong, with that error: who has to stop a master at
    once is not to look for a comma first. ConfigError where it cannot be told."""
    try:
        return load(path, environ, directory).master.pid_file, None
    except ConfigError as error:
        home = (directory or Path.cwd()).absolute()
        file, source = _given(home / path, str(path)) if path else _found(home)
        named = environ.get("TARRY_MASTER__PID_FILE") or _pid_file_in(source.table())
        if not isinstance(named, str):
            raise
        return (file.parent if file else home) / named, error


def _pid_file_in(table: Mapping[str, Any]) -> object:
    master = table.get("master", {})
    return master.get("pid_file", str(Master().pid_file)) if isinstance(master, dict) else None


def _given(file: Path, shown: str) -> tuple[Path, Source]:
    source = read_file(file, shown)
    if source is None:
        raise ConfigError(f"{shown} does not exist: `tarry init` writes a tarry.toml to start from")
    if source.within and not source.table():
        raise ConfigError(f"{shown} has no [tool.tarry]: add it, or name another file")
    return file, source


def _found(home: Path) -> tuple[Path | None, Source]:
    for name in FILES:
        source = read_file(home / name, name)
        if source and (source.table() or not source.within):
            return home / name, source
    return None, Source()


def _checked(config: Config, source: Source) -> Config:
    for name, pool in config.pools.items():
        if not pool.threads and not pool.async_:
            raise source.wrong(("pools", name, "threads"), "1 or more while async is 0", 0)
        least, most = pool.bounds.min, pool.bounds.max
        if not most:
            raise source.wrong(("pools", name, "workers"), "max as well, as in { min = 1, max = 8 }", {"min": least})
        if most < least:
            raise source.wrong(("pools", name, "workers", "max"), f"{least} or more, as min is", most)
    return config


def _settled(config: Config, home: Path, file: Path | None) -> Config:
    master = config.master
    log = str(home / master.log) if log_target(master.log).kind == "file" else master.log
    pools = {name: replace(pool, name=name) for name, pool in config.pools.items()}
    outbox, push = config.client.outbox, config.push
    return replace(
        config,
        store=_settled_store(config.store, home),
        client=replace(config.client, outbox=outbox and home / outbox),
        push=replace(config.push, log=push.log and home / push.log, ca=push.ca and home / push.ca),
        master=replace(master, pid_file=home / master.pid_file, log=log),
        pools=pools or {"default": Pool()},
        directory=home,
        file=file,
    )


def _settled_store(store: str | list[str] | None, home: Path) -> str | list[str] | None:
    if isinstance(store, list):
        return [_settled_url(url, home) for url in store]
    return store and _settled_url(store, home)


def _settled_url(url: str, home: Path) -> str:
    """sqlite:///rel.db -> sqlite:////home/rel.db; every other URL as it is."""
    path = url.removeprefix(_SQLITE)
    if path == url or path.startswith(("/", ":memory:")):
        return url
    return f"{_SQLITE}{home}/{path}"


def template() -> str:
    """A tarry.toml to start from: every setting with its default, as a comment without a space after the `#`."""
    return Path(__file__).with_name("template.toml").read_text(encoding="utf-8")
