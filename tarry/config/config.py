"""All settings. They come from one file, `tarry.toml` or `[tool.tarry]` in pyproject.toml, and from variables.

    store                          TARRY_STORE
    [master] pid_file              TARRY_MASTER__PID_FILE
    [pools.default] workers        TARRY_POOLS__DEFAULT__WORKERS

Inside the program, durations are whole microseconds (seconds where it says so), sizes bytes, and paths absolute.

[calendars.NAME]: the days on which schedules may tick that name the calendar.

[defaults]: the settings of tasks that have none of their own.

[metrics]: where Prometheus finds the figures of this host.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from tarry.config.kinds import (
    ALLOW,
    APP,
    DEFAULT_STORE,
    DIRECTORY,
    DURATION,
    FENCE,
    FILE,
    FLAG,
    FORMAT,
    FRACTION,
    FROM_0,
    FROM_1,
    LEASE,
    LEVEL,
    LOG,
    OUTPUT,
    PAYLOAD_PLACE,
    PAYLOAD_SIZE,
    PLACES,
    QUEUES,
    RATE,
    RECIPIENTS,
    SCHEMES,
    SEALED,
    SECONDS,
    SHARE,
    SHARES,
    SIZE,
    SOME_SIZE,
    STORE,
    TASKS,
    TEXT,
    WHEN_FULL,
    Sealed,
    parse_list,
    parse_table,
)
from tarry.config.parser import Kind, SettingsSource, find_file, line_of, override, read_file, section
from tarry.config.server_settings import (
    ADDRESSES,
    HOST_NAMES,
    SOME_TIME,
    ServerConfig,
    absolute_paths,
    check_server,
    resolve_server,
)
from tarry.errors import ConfigError
from tarry.model import retry
from tarry.model.bound import Bound, WhenFull
from tarry.model.duration import DAY, HOUR, MINUTE, SECOND, microseconds
from tarry.model.limit import QUEUE, Limit, parse_limit
from tarry.model.retry import SHAPES, Retry
from tarry.model.schedules.calendar import EVERY_DAY, MOST_DATES, WEEKDAYS, Calendar
from tarry.model.values.listen_address import ListenAddress
from tarry.model.values.log_target import log_target


class MetricsConfig(Struct, frozen=True):
    """[metrics]. Without an address and a file there are no figures besides those of [server]."""

    listen: Annotated[tuple[ListenAddress, ...], ADDRESSES] = ()
    """The keeper serves `/metrics` here, to anybody."""
    host_names: Annotated[tuple[str, ...], HOST_NAMES] = ()
    """Names by which Prometheus calls it, besides addresses and localhost; a request for another name is refused."""
    textfile: Annotated[Path | None, FILE] = None
    """The keeper writes the figures to this file, for node_exporter."""
    every: Annotated[float, SOME_TIME] = 15.0
    """Seconds between two writes of the file."""

    @property
    def is_on(self) -> bool:
        """Whether the keeper shows figures at all."""
        return bool(self.listen) or self.textfile is not None

    @property
    def addresses(self) -> dict[str, tuple[ListenAddress, ...]]:
        """The addresses by the name of their door, `metrics`."""
        return {"metrics": self.listen} if self.listen else {}


def check_metrics(config: MetricsConfig, server: ServerConfig, source: SettingsSource) -> None:
    """ConfigError if [metrics] contradicts itself or [server]."""
    taken = {address for addresses in server.addresses.values() for address in addresses}
    for address in config.listen:
        if address in taken:
            raise source.wrong(("metrics", "listen"), "another address than [server] has", str(address))
    if config.textfile is not None and config.textfile.suffix != ".prom":
        wanted = "a file whose name ends in .prom, since node_exporter reads no others"
        raise source.wrong(("metrics", "textfile"), wanted, str(config.textfile))


def resolve_metrics(config: MetricsConfig, home: Path) -> MetricsConfig:
    """With absolute paths; relative ones start at `home`."""
    return replace(
        config, listen=absolute_paths(config.listen, home), textfile=config.textfile and home / config.textfile
    )


def _backoff(written: str | list[float | str]) -> str | tuple[int, ...]:
    # Only for its ValueError.
    Retry(1, written)
    return written if isinstance(written, str) else tuple(map(microseconds, written))


def _parse_list(text: str) -> Any:
    # Only a list is JSON: a formula such as `2n+1 minutes` is not.
    return json.loads(text) if text.startswith("[") else text


BACKOFF = Kind(
    '"exponential", "linear", "fixed", a formula such as "2n+1 minutes", or a list of delays such as ["1m", "5m"]',
    str | Annotated[list[int | float | str], Meta(min_length=1)],
    _backoff,
    _parse_list,
    names=SHAPES,
)


class DefaultRetry(Struct, frozen=True):
    """When a failed job is tried again: the arguments of `Retry`, with durations in microseconds."""

    max: Annotated[int | None, FROM_0] = retry.DEFAULT.limit
    """Attempts after the first; 0: none."""
    backoff: Annotated[str | tuple[int, ...], BACKOFF] = "exponential"
    base: Annotated[int, DURATION] = retry.DEFAULT.base
    most: Annotated[int, DURATION] = retry.DEFAULT.cap
    jitter: Annotated[float, FRACTION] = retry.DEFAULT.jitter

    @property
    def rule(self) -> Retry:
        """The rule that these settings make."""
        backoff = self.backoff if isinstance(self.backoff, str) else list(map(_time, self.backoff))
        return Retry(self.max, backoff, base=_time(self.base), cap=_time(self.most), jitter=self.jitter)


class Defaults(Struct, frozen=True):
    """[defaults]."""

    retry: DefaultRetry = DefaultRetry()


def _time(micros: int) -> timedelta:
    return timedelta(microseconds=micros)


def _check_days(written: str) -> str:
    # Only for its ValueError.
    Calendar(written)
    return written


DAYS = Kind(
    'weekdays such as "mon-fri" or "mon,wed,fri"', str, _check_days, names=("mon-fri", "mon-sat", "sat,sun", *WEEKDAYS)
)
DATES = Kind(
    'a list of dates such as ["2026-12-25", "2026-12-28"]',
    Annotated[list[date], Meta(max_length=MOST_DATES)],
    tuple,
    parse_list,
)


class CalendarConfig(Struct, frozen=True):
    """[calendars.NAME]."""

    days: Annotated[str, DAYS] = EVERY_DAY
    without: Annotated[tuple[date, ...], DATES] = ()
    """Dates that do not belong to it."""
    only: Annotated[tuple[date, ...], DATES] = ()
    """If there are any: no other dates belong to it."""

    @property
    def calendar(self) -> Calendar:
        """The calendar that these settings make; ValueError: it has no day."""
        return Calendar(self.days, without=self.without, only=self.only or None)


def check_calendars(calendars: Mapping[str, CalendarConfig], source: SettingsSource) -> None:
    """ConfigError for a calendar without a day."""
    for name, one in calendars.items():
        try:
            one.calendar  # noqa: B018
        except ValueError:
            written = [str(day) for day in one.only]
            expected = "a date that is one of its days and not left out by without"
            raise source.wrong(("calendars", name, "only"), expected, written) from None


FILES = ("tarry.toml", "pyproject.toml")

_SQLITE = "sqlite:///"


class Workers(Struct, frozen=True):
    """The bounds of a pool that follows its backlog."""

    min: Annotated[int, FROM_1] = 1
    max: Annotated[int, FROM_1] = 0
    """0: missing, which `load` refuses."""
    calm: Annotated[float, SECONDS] = 30.0
    """A worker leaves when fewer workers have been enough for so many seconds."""


WORKERS = Kind(
    "a whole number of 1 or more, or bounds such as { min = 1, max = 8 }",
    FROM_1.shape,
    parse_variable=parse_table,
    table=Workers,
)


class MasterConfig(Struct, frozen=True):
    """[master]: the process that starts and replaces all others."""

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
    app_version: Annotated[str, TEXT] = ""
    """Which version of the app runs, for `tarry deploys`; empty: the commit of its git repository, if there is one."""
    remote_control: Annotated[bool, FLAG] = True
    """Whether the master takes requests that come through the store: from the console, the API, and other hosts."""


class Pool(Struct, frozen=True):
    """[pools.NAME]: worker processes that serve the same queues with the same settings."""

    name: str = "default"
    queues: Annotated[Literal["*"] | list[str] | dict[str, int], QUEUES] = "*"
    """All queues, or these, or these by weight."""
    workers: Annotated[int | Workers, WORKERS] = 1
    """How many processes; with bounds, as many as the backlog needs."""
    threads: Annotated[int, FROM_0] = 1
    """Sync jobs at once in a process; 0 only while `async_` is more."""
    async_: Annotated[int, FROM_0] = 100
    """Async jobs at once in a process."""
    shares: Annotated[Literal["strict"] | tuple[int, int, int], SHARES] = (5, 3, 2)
    """How the bands of high, normal and low priority share starts."""
    lease: Annotated[int, LEASE] = 15 * SECOND
    kill_after: Annotated[float, SECONDS] = 0.5
    """Seconds that a job has to end after a timeout or a cancel has interrupted it."""
    fence: Annotated[Literal["off", "stop"], FENCE] = "off"
    """"stop": a worker that is cut off from its store ends its attempts before their lease does."""
    keep_output: Annotated[int, OUTPUT] = 8_000
    """Bytes of what each job prints and logs; 0: none is kept."""
    max_jobs: Annotated[int, FROM_0] = 100_000
    """A worker that ran so many jobs is replaced; 0: never. This limit, age and memory are up to a tenth lower for each
    worker, at random."""
    max_age: Annotated[int, DURATION] = HOUR
    max_memory: Annotated[int, SIZE] = 0
    kill_memory: Annotated[int, SIZE] = 0
    """Bytes at which a worker is killed at once; 0: twice `max_memory`, if that is set."""
    uvloop: Annotated[bool, FLAG] = False
    """Async jobs run on uvloop's event loop."""

    @property
    def bounds(self) -> Workers:
        """The fewest and the most workers. Both are equal if the pool does not follow its backlog."""
        workers = self.workers
        return workers if isinstance(workers, Workers) else Workers(workers, workers)

    @property
    def follows(self) -> bool:
        """Whether the number of workers follows the backlog."""
        return isinstance(self.workers, Workers)


class ClientConfig(Struct, frozen=True):
    """[client]: how jobs are enqueued."""

    timeout: Annotated[float, SECONDS] = 5.0
    """Seconds that an enqueue takes at most, from the call to the answer of the store."""
    outbox: Annotated[Path | None, FILE] = None
    """Where jobs are kept while the store is away; None: the enqueue fails then."""
    outbox_bytes: Annotated[int, SOME_SIZE] = 64_000_000


class EncryptionConfig(Struct, frozen=True):
    """What jobs say is sealed before a store sees it."""

    keys: Annotated[list[str], PLACES] = []
    """Where the keys are, each 32 bytes in base64. The first seals, all open. Empty: nothing is sealed."""


class PayloadsConfig(Struct, frozen=True):
    """[payloads]: where large arguments and results are kept, outside of the store."""

    to: Annotated[str | None, PAYLOAD_PLACE] = None
    """A directory that all hosts share, or a bucket; None: all is kept in the store."""
    over: Annotated[int, SOME_SIZE] = 256_000
    """Arguments and results of more bytes are kept there."""
    most: Annotated[int, PAYLOAD_SIZE] = 64_000_000
    """Bytes that they may take."""


class Keep(Struct, frozen=True):
    """How long finished jobs of a queue are kept, in microseconds, and at most how many bytes of them."""

    done: Annotated[int, DURATION] = HOUR
    dead: Annotated[int, DURATION] = 30 * DAY
    bytes: Annotated[int, SIZE] = 64_000_000


class Queue(Struct, frozen=True):
    """[queues.NAME]."""

    keep: Keep = Keep()
    limit: Annotated[int | None, FROM_0] = None
    """Jobs of the queue that run at once, over all hosts."""
    rate: Annotated[str | None, RATE] = None
    """How many start in a period, over all hosts, such as `100/s`."""
    max_waiting: Annotated[int | None, FROM_0] = None
    """How many of its jobs may wait, ready and scheduled; 0: any number; None: the bound in the store stays."""
    when_full: Annotated[WhenFull, WHEN_FULL] = "refuse"
    """What becomes of a new job then: it is refused, or stored in place of the oldest one."""


class Push(Struct, frozen=True):
    """[push]: how HTTP tasks are delivered."""

    allow: Annotated[list[str], ALLOW] = []
    """Networks and addresses that may be reached besides the public ones."""
    secrets: Annotated[list[str], PLACES] = []
    """The places that may hold secrets of tasks that are registered at run time. Tasks of the file may use any."""
    ca: Annotated[Path | None, FILE] = None
    """A file of certificates (PEM) that are trusted besides the system's."""
    log: Annotated[Path | None, DIRECTORY] = None
    """The directory of request.log, notify.log and error.log; None: no logs."""


class Alerts(Struct, frozen=True):
    """[alerts]: who gets messages, and at which limits. `tarry.alert.alert_settings` reads the sealed settings.

    Durations in microseconds. 0 in `oldest`, `latency` or `dead` turns that alert off.
    """

    # Sealed, since the URL of a webhook or a channel may be secret.
    to: Annotated[Sealed, RECIPIENTS] = Sealed([])
    """The recipients of all alerts."""
    channels: Annotated[list[str], SCHEMES] = []
    """The schemes of the channels that a task's own `alert` may name."""
    smtp: Annotated[Sealed, SEALED] = Sealed("")
    from_: Annotated[str, TEXT] = ""
    secret: Annotated[Sealed, SEALED] = Sealed("")
    """One secret or several, which sign the messages to webhooks."""
    group: Annotated[int, DURATION] = 30 * SECOND
    """Conditions that begin within this time go into one message."""
    every: Annotated[int, DURATION] = 5 * MINUTE
    """A recipient gets at most one message in this time."""
    oldest: Annotated[int, DURATION] = 5 * MINUTE
    """A queue is stuck when a job has been ready for longer."""
    latency: Annotated[int, DURATION] = SECOND
    """A store is slow when the smallest query takes longer."""
    memory: Annotated[float, SHARE] = 0.9
    """A store is too full when it takes this part of its own maximum."""
    dead: Annotated[int, FROM_0] = 1
    """How many dead jobs of one task, within `every`, cause an alert."""
    new_errors: Annotated[bool, FLAG] = True
    """Whether an error that was not seen before causes an alert."""
    lost_hosts: Annotated[bool, FLAG] = True
    """Whether a host whose master vanished causes one."""
    console: Annotated[str, TEXT] = ""
    """The URL at which people see the console, for the links of alerts."""


class Config(Struct, frozen=True):
    """All settings, defaults filled in."""

    app: Annotated[str | None, APP] = None
    store: Annotated[str | list[str] | None, STORE] = None
    """As written, with absolute paths; None: not set. `stores` fills in the default."""
    max_body: Annotated[int, SOME_SIZE] = 2**20
    max_schedules: Annotated[int, FROM_0] = 100_000
    """How many schedules the store keeps; 0: any number."""
    client: ClientConfig = ClientConfig()
    defaults: Defaults = Defaults()
    master: MasterConfig = MasterConfig()
    pools: dict[str, Pool] = field(default_factory=lambda: {"default": Pool()})
    queues: dict[str, Queue] = {}
    calendars: dict[str, CalendarConfig] = {}
    tasks: Annotated[dict[str, Any], TASKS] = {}
    """HTTP tasks by name, as written: `tarry.push.endpoint.endpoint_settings` reads them."""
    push: Push = Push()
    encryption: EncryptionConfig = EncryptionConfig()
    payloads: PayloadsConfig = PayloadsConfig()
    alerts: Alerts = Alerts()
    server: ServerConfig = ServerConfig()
    metrics: MetricsConfig = MetricsConfig()
    directory: Path = Path()
    """The directory of the file, else the working directory. Relative paths start here."""
    file: Path | None = None

    @property
    def stores(self) -> list[str]:
        """The URLs of the shards, one or more."""
        store = self.store or _resolve_url(DEFAULT_STORE, self.directory)
        return [store] if isinstance(store, str) else store

    def resolve_store(self, store: str | Sequence[str]) -> str | list[str]:
        """The URL or URLs of a store, in which the path of a file begins in `directory`."""
        return _resolve_store(store, self.directory)

    def place(self, *keys: str) -> str:
        """Where that setting stands, as error messages name it: `tarry.toml:12`."""
        # Read again, since the settings do not keep their lines.
        source = self.file and read_file(self.file, self.file.name)
        line = source and line_of(source.text, source.within + keys)
        return f"{source.shown}:{line}" if source and line else "settings"

    def keep(self, queue: str) -> Keep:
        """How long finished jobs of that queue are kept; the defaults if it has no section."""
        return self.queues.get(queue, Queue()).keep

    @property
    def limits(self) -> dict[str, Limit]:
        """The limits of queues, by name."""
        found = {QUEUE + name: parse_limit(queue.limit, queue.rate) for name, queue in self.queues.items()}
        return {name: limit for name, limit in found.items() if limit is not None}

    @property
    def named_calendars(self) -> dict[str, Calendar]:
        """The calendars that schedules may name."""
        return {name: one.calendar for name, one in self.calendars.items()}

    @property
    def bounds(self) -> dict[str, Bound]:
        """How many jobs may wait in queues, by name."""
        given = {name: queue for name, queue in self.queues.items() if queue.max_waiting is not None}
        return {name: Bound(queue.max_waiting or 0, queue.when_full) for name, queue in given.items()}


_current: Config | None = None


def load(path: Path | None = None, environ: Mapping[str, str] = os.environ, directory: Path | None = None) -> Config:
    """The settings of the file at `path`, else of the first of FILES in `directory` (the working directory if None), or
    in the nearest directory above it that has any. Variables override them. ConfigError if a setting is unknown or
    wrong, or the file cannot be read."""
    home = (directory or Path.cwd()).absolute()
    file, source = _read_named_file(home / path, str(path)) if path else find_file(home, FILES)
    home = file.parent if file else home
    table = source.table()
    # Before the table is read, so that a variable is checked as the file is.
    override(table, Config, environ, source)
    config = section(Config, table, (), source)
    check_server(config.server, source)
    check_metrics(config.metrics, config.server, source)
    check_calendars(config.calendars, source)
    _check_payloads(config, source)
    return _resolve_paths(_check_pools(config, source), home, file)


@contextlib.contextmanager
def as_current(config: Config) -> Iterator[None]:
    """Within the block, these are the settings of every App that is given none. For the whole process."""
    global _current
    before, _current = _current, config
    try:
        yield
    finally:
        _current = before


def current_config() -> Config:
    """The settings for an App that is given none: those of `as_current`, else those that `load` finds."""
    return _current or load()


def pid_file(
    path: Path | None = None, environ: Mapping[str, str] = os.environ, directory: Path | None = None
) -> tuple[Path, ConfigError | None]:
    """`load(...).master.pid_file`, and the error if other settings are wrong. ConfigError: the path is not known."""
    # To stop a master at once, nobody must have to correct another setting first.
    try:
        return load(path, environ, directory).master.pid_file, None
    except ConfigError as error:
        home = (directory or Path.cwd()).absolute()
        file, source = _read_named_file(home / path, str(path)) if path else find_file(home, FILES)
        named = environ.get("TARRY_MASTER__PID_FILE") or _pid_file_in(source.table())
        if not isinstance(named, str):
            raise
        return (file.parent if file else home) / named, error


def _pid_file_in(table: Mapping[str, Any]) -> object:
    master = table.get("master", {})
    return master.get("pid_file", str(MasterConfig().pid_file)) if isinstance(master, dict) else None


def _read_named_file(file: Path, shown: str) -> tuple[Path, SettingsSource]:
    source = read_file(file, shown)
    if source is None:
        raise ConfigError(f"{shown} does not exist: `tarry init` writes a tarry.toml to start from")
    if source.within and not source.table():
        raise ConfigError(f"{shown} has no [tool.tarry]: add it, or name another file")
    return file, source


def _check_payloads(config: Config, source: SettingsSource) -> None:
    """ConfigError if there are sizes that neither the store nor the place would take."""
    over, most = config.payloads.over, config.payloads.most
    if config.payloads.to and over > config.max_body:
        raise source.wrong(("payloads", "over"), f"at most max_body, which is {config.max_body}", over)
    if config.payloads.to and most < over:
        raise source.wrong(("payloads", "most"), f"over, which is {over}, or more", most)


def _check_pools(config: Config, source: SettingsSource) -> Config:
    for name, pool in config.pools.items():
        if not pool.threads and not pool.async_:
            raise source.wrong(("pools", name, "threads"), "1 or more while async is 0", 0)
        least, most = pool.bounds.min, pool.bounds.max
        if not most:
            raise source.wrong(("pools", name, "workers"), "max as well, as in { min = 1, max = 8 }", {"min": least})
        if most < least:
            raise source.wrong(("pools", name, "workers", "max"), f"{least} or more, as min is", most)
    return config


def _resolve_paths(config: Config, home: Path, file: Path | None) -> Config:
    # Relative paths start at the file, wherever the process was started.
    master = config.master
    log = str(home / master.log) if log_target(master.log).kind == "file" else master.log
    # In the file the name stands only in the key of the table.
    pools = {name: replace(pool, name=name) for name, pool in config.pools.items()}
    outbox, push = config.client.outbox, config.push
    return replace(
        config,
        store=config.store and _resolve_store(config.store, home),
        client=replace(config.client, outbox=outbox and home / outbox),
        push=replace(config.push, log=push.log and home / push.log, ca=push.ca and home / push.ca),
        master=replace(master, pid_file=home / master.pid_file, log=log),
        pools=pools or {"default": Pool()},
        server=resolve_server(config.server, home),
        metrics=resolve_metrics(config.metrics, home),
        directory=home,
        file=file,
    )


def _resolve_store(store: str | Sequence[str], home: Path) -> str | list[str]:
    return _resolve_url(store, home) if isinstance(store, str) else [_resolve_url(url, home) for url in store]


def _resolve_url(url: str, home: Path) -> str:
    """sqlite:///rel.db -> sqlite:////home/rel.db; leaves every other URL as it is."""
    path = url.removeprefix(_SQLITE)
    if path == url or path.startswith(("/", ":memory:")):
        return url
    return f"{_SQLITE}{home}/{path}"


def template() -> str:
    """A tarry.toml to start from: every setting with its default, as a comment without a space after the `#`."""
    return Path(__file__).with_name("template.toml").read_text(encoding="utf-8")
