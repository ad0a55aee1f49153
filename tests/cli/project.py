"""A directory with an app, settings and a store, in which real commands run and real masters live and die."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from tarry.client.client import Client
from tarry.model.job import Job
from tarry.runtime import control
from tarry.runtime.board.reader import Board, ChildStatus
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Store
from tarry.store.sqlite.store import SqliteStore
from tarry.tasks.arguments.options import Options
from tests.cli import forked
from tests.cli.forked import TarryProcess, run_module

T = TypeVar("T")

MARK = "PROJECT_OF_A_TEST"
"""A variable that all processes of a project inherit: what is left of them is found by it."""

_FORKED = f"{forked.VARIABLE}=1\0".encode()
"""Of a process whose variables are those of the fork server: its directory tells whose it is."""

SMALL_APP = """
from tarry import App

app = App()

@app.task
def add(a: int, b: int = 0) -> int:
    return a + b

@app.task(queue="mail", priority=5, timeout=30, retry=3)
async def greet(name: str) -> str:
    return f"Hello, {name}!"

@app.task(retry=None)
def fail(why: str) -> None:
    raise ValueError(why)
"""


_NO_COMPLAINT = ("reloading: ", "waiting for ", "tarry: new store at ", "tarry: no store at ")
_WAYS_OUT = (control._STOP_NOW, control._GOES_ON, control._UPGRADES)
"""What a wait of more than ten seconds says, as on a slow machine."""


def _is_note(line: str) -> bool:
    return line.startswith((*_NO_COMPLAINT, "if it does not answer: ")) or line in _WAYS_OUT


class CommandResult(NamedTuple):
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        """The lines on stderr, but for those that a slow reload or stop prints while it waits, and of a new store."""
        return [line for line in self.err.splitlines() if not _is_note(line)]


def until(look: Callable[[], T], limit: float = 60.0) -> T:
    """The first true answer."""
    end = time.monotonic() + limit
    while not (answer := look()):
        assert time.monotonic() < end, f"still {answer!r} after {limit} s"
        time.sleep(0.01)
    return answer


def alive(pid: int) -> bool:
    """False for a zombie, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Project:
    def __init__(self, directory: Path, app: str = SMALL_APP, settings: str = "") -> None:
        self.directory = directory
        self.pid_file = directory / "run" / "tarry.pid"
        self.database = directory / "tarry.db"
        self.log_file = directory / "log"
        self.serves_within = 30.0
        """Seconds that a master has to start."""
        self.is_real = False
        """Whether masters are started and not forked: only the real one can write its title."""
        self._masters: list[subprocess.Popen[bytes]] = []
        self.write("app.py", app)
        self.settings(settings)

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def settings(self, text: str) -> None:
        self.write("tarry.toml", f'app = "app:app"\n{text}')

    @property
    def environ(self) -> dict[str, str]:
        """Of the commands: none of the test's own settings, and no stale bytecode of an app that was changed."""
        ours = {name: text for name, text in os.environ.items() if not name.startswith("TARRY_")}
        # With that, a process's title leaves its variables alone, by which it is found.
        ours["SPT_NOENV"] = "1"
        return ours | {MARK: str(self.directory), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}

    def tarry(self, *words: object, stdin: str = "", limit: float = 60.0, **environ: str) -> CommandResult:
        """One command, to its end."""
        env = self.environ | environ
        ended = run_module("tarry", [*map(str, words)], stdin=stdin, limit=limit, cwd=self.directory, env=env)
        return CommandResult(ended.returncode, ended.stdout, ended.stderr)

    def command(self, *words: object) -> "subprocess.Popen[bytes]":
        """One command that is not waited for; its end is for the test."""
        null = subprocess.DEVNULL
        return TarryProcess(
            [*map(str, words)], cwd=self.directory, env=self.environ, stdin=null, stdout=null, stderr=null
        )

    def said(self, *words: object, **rest: Any) -> str:
        """What a command that succeeds prints."""
        result = self.tarry(*words, **rest)
        assert (result.status, result.complaints) == (0, []), result
        return result.out.rstrip("\n")

    def facts(self, *words: object, **rest: Any) -> Any:
        """What it prints as JSON."""
        return msgspec.json.decode(self.said("--json", *words, **rest))

    def misused(self, *words: object, **rest: Any) -> str:
        """The one line on stderr of a command that was called as it cannot be."""
        return self.refused(*words, status=2, **rest)

    def refused(self, *words: object, status: int = 1, **rest: Any) -> str:
        """The one line on stderr of a command that fails."""
        result = self.tarry(*words, **rest)
        assert result.status == status, result
        (line,) = result.complaints
        assert line.startswith("tarry: "), line
        return line.removeprefix("tarry: ")

    def start(self, *words: object) -> "subprocess.Popen[bytes]":
        """A master in the foreground, not waited for; its log goes to `log_file`."""
        with self.log_file.open("ab") as log:
            words = ("start", *words)
            master = TarryProcess(
                [*map(str, words)],
                is_real=self.is_real,
                cwd=self.directory,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._masters.append(master)
        return master

    def serve(self) -> "subprocess.Popen[bytes]":
        """A master in the foreground that serves."""
        master = self.start()
        until(lambda: self._serving(master) or master.poll() is not None, self.serves_within)
        assert master.poll() is None, self.log()
        return master

    def _serving(self, master: "subprocess.Popen[bytes]") -> bool:
        board = control.status(self.pid_file)
        return bool(board and board.alive and board.pid == master.pid and board.state == "serving")

    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    def board(self) -> Board:
        board = control.status(self.pid_file)
        assert board is not None, self.log()
        return board

    def children(self, role: str = "worker") -> list[ChildStatus]:
        """Those that are there and ready."""
        board = control.status(self.pid_file)
        found = board.children if board else []
        return [child for child in found if child.role == role and child.boot == "ready"]

    def pids(self, role: str = "worker") -> list[int]:
        return [child.pid for child in self.children(role)]

    def processes(self) -> list[int]:
        """All living processes of this project, also orphans."""
        return marked(str(self.directory))

    @contextlib.contextmanager
    def store(self) -> Iterator[Store]:
        store = SqliteStore(self.database)
        try:
            yield store
        finally:
            store.close()

    def jobs(self, *, task: str | None = None) -> list[Job]:
        with self.store() as store:
            return store.find(Query(task=task, limit=100_000))

    def job(self, id: str) -> Job:
        with self.store() as store:
            (job,) = store.get([ids.parse(id)])
        assert job is not None, f"no job {id}"
        return job

    def enqueue(self, *words: object) -> str:
        """The id of the job that `tarry enqueue` put."""
        return self.said("enqueue", *words)

    def put(self, task: str, *args: object, times: int = 1, **options: Any) -> list[str]:
        """Ids of jobs put without a command, which is quicker."""
        with self.store() as store:
            client = Client(store, {})
            body = msgspec.json.encode(args)
            return [
                handle.id
                for handle in client.insert_jobs(
                    [client.make_job(task, body, Options(**options)) for _ in range(times)]
                )
            ]

    def kill_all(self) -> None:
        """As if the host died. Some may end by themselves once their master is gone."""
        kill_marked(str(self.directory))

    def close(self) -> None:
        """Kills whatever is left; those that stopped too."""
        kill_marked(str(self.directory))
        for master in self._masters:
            master.wait()
        # pytest shows it where the test failed: a failure that comes once in a thousand runs has no other trace.
        print(self.log()[-20_000:])


def marked(mark: str) -> list[int]:
    """All living processes that have inherited that MARK, also orphans."""
    return [pid for pid in _pids() if _has(pid, mark) and alive(pid)]


def _has(pid: int, mark: str) -> bool:
    environ = _environ(pid)
    return f"{MARK}={mark}\0".encode() in environ or (_FORKED in environ and _works_in(pid, mark))


def kill_marked(mark: str) -> None:
    """Kills them, and whatever they still start; returns once none is left."""
    until(lambda: _killed(mark))


def _killed(mark: str) -> bool:
    left = marked(mark)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return not left


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:
        return b""


def _works_in(pid: int, directory: str) -> bool:
    """Whether it works there or below. A daemon is in the root: it shares memory by a file of the project."""
    try:
        cwd = os.readlink(f"/proc/{pid}/cwd")
        maps = Path(f"/proc/{pid}/maps").read_text() if cwd == "/" else ""
        return f"{cwd}/".startswith(f"{directory}/") or f" {directory}/" in maps
    except OSError:
        return False
