"""Programs of two versions on a file: a store of its own, one that is shared, an outbox.

`python -m tests.store.embedded_files KIND PATH ACT` is one of them: see `ACTS`.
"""

import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tarry.model.job import Job
from tarry.store import outbox
from tarry.store.outbox import Outbox
from tarry.store.rules.entry import Entry
from tarry.store.rules.ids import uuid7
from tarry.store.shared.schema_steps import SchemaStep
from tarry.store.sqlite import file as sqlite_file
from tarry.store.sqlite import schema
from tarry.store.sqlite.store import SqliteStore

FILES = ("own", "shared", "outbox")
WRITES = ("CREATE TABLE tarry_weight (n INTEGER) STRICT", "INSERT INTO tarry_weight VALUES (3)")
"""What the further step does."""


def owner(kind: str) -> Any:
    """The module that has the steps of such a file."""
    return outbox if kind == "outbox" else schema


def further(statements: Sequence[str] = WRITES, older_go_on: bool = False) -> SchemaStep:
    return SchemaStep("weighs", statements, older_go_on)


def opened(kind: str, path: Path) -> SqliteStore | Outbox:
    """The file, as a producer has it open."""
    if kind == "outbox":
        box = Outbox(path)
        box.page(0, 1)
        return box
    return SqliteStore(path, shared="yes" if kind == "shared" else "")


def put(file: SqliteStore | Outbox) -> None:
    job = Job(uuid7(), "mail", b"[1]", due=1)
    if isinstance(file, Outbox):
        file.keep([Entry(job, "replace", "x")])
    else:
        file.insert([job])


def use(kind: str, path: Path) -> None:
    """Opens the file, puts a job, and closes it."""
    with closing(opened(kind, path)) as file:
        put(file)


def content(kind: str, path: Path) -> tuple[int, bool]:
    """How many jobs are in it, and whether the further step was made."""
    # A process that has ended has no lock, so that Python's own SQLite harms nobody.
    with closing(sqlite3.connect(path)) as database:
        ((jobs,),) = database.execute(f"SELECT count(*) FROM {'entry' if kind == 'outbox' else 'tarry_job'}")
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_schema")}
        if "tarry_weight" not in names:
            return jobs, False
        assert database.execute("SELECT n FROM tarry_weight").fetchall() == [(3,)]
        return jobs, True


class _Killed(tuple[str, ...]):
    """Statements of which the process sees the first only."""

    def __iter__(self) -> Iterator[str]:
        yield self[0]
        _die()


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hold(kind: str, path: Path) -> None:
    """Has the file open, puts a job for each line that it reads, and answers it."""
    with closing(opened(kind, path)) as file:
        for _ in iter(lambda: (print("ok", flush=True), sys.stdin.readline())[1], ""):
            put(file)


def _begin(kind: str, path: Path) -> None:
    """Is of the newer version; begins when told."""
    owner(kind).STEPS += (further(),)
    sys.stdin.readline()
    use(kind, path)


def _die_within(kind: str, path: Path) -> None:
    """Is killed amid the further step."""
    owner(kind).STEPS += (further(_Killed(WRITES)),)
    use(kind, path)


def _die_behind(kind: str, path: Path) -> None:
    """Is killed right after it."""
    owner(kind).STEPS += (further(),)
    alone = sqlite_file.take_alone

    def take_alone(database: Any) -> None:
        alone(database)
        sqlite_file.to_wal = _die  # type: ignore[assignment]

    sqlite_file.take_alone = take_alone
    use(kind, path)


ACTS: dict[str, Callable[[str, Path], None]] = {
    "hold": _hold,
    "begin": _begin,
    "die_within": _die_within,
    "die_behind": _die_behind,
}

if __name__ == "__main__":
    ACTS[sys.argv[3]](sys.argv[1], Path(sys.argv[2]))
