"""What the logs say of jobs after they were accepted: that they have ended, or were changed.

It is kept in a temporary SQLite database, which moves to disk beyond a few megabytes.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import msgspec
from msgspec import Struct

from tarry.model.duration import SECOND
from tarry.push.journal.log_files import LineReader, LogFiles, Unreadable
from tarry.push.journal.log_lines import format_time, parse_request
from tarry.push.journal.logs import ATTEMPTS, REQUESTS
from tarry.store import ids

_ENDED, _BEGUN, _CHANGED = range(3)
_KINDS = {"cancelled": _ENDED, "deleted": _ENDED, "retried": _BEGUN, "changed": _CHANGED}
_EARLIER = 300.0  # Seconds that the clock of a worker's host may be behind a producer's.
_FOR_EVER = "9999"

_TABLE = "CREATE TABLE fact (id BLOB, kind INT, at TEXT, line BLOB, PRIMARY KEY (id, kind)) WITHOUT ROWID"
_NOTE = (
    "INSERT INTO fact VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET at = excluded.at, line = excluded.line"
    " WHERE excluded.at >= at"
)

_Fact = tuple[bytes, int, str, bytes]


class _OutcomeLine(Struct):
    """The fields that are read here, of either log."""

    time: str
    job: str
    event: str = ""
    ended: bool = False


class LoggedOutcome(Struct, frozen=True):
    """What the logs say of one accepted job."""

    ended: bool = False
    """Delivered, dead, cancelled or deleted; and not retried since."""
    line: bytes = b""
    """The newest line of request.log with a change of the job."""


class LoggedOutcomes:
    """The outcomes in the logs of some directories. since: seconds since the epoch. OSError."""

    def __init__(self, directories: Iterable[Path], since: float, most: int, bad: Unreadable) -> None:
        """most: bytes of a line. bad: collects the lines of notify.log that cannot be read."""
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("PRAGMA cache_size = -16000")
        # A temporary database need not survive a crash.
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute(_TABLE)
        time = (format_time(max(round((since - _EARLIER) * SECOND), 0)), _FOR_EVER, most)
        readers = {
            ATTEMPTS: LineReader(_read_attempt, *time, bad),
            # Not counted here: `Replay` reads the same file and counts them.
            REQUESTS: LineReader(_read_request, *time, Unreadable()),
        }
        self._logs = [
            (LogFiles(directory / name, since - _EARLIER), reader)
            for directory in directories
            for name, reader in readers.items()
        ]

    def catch_up(self) -> None:
        """Reads what was written since the last call."""
        for files, reader in self._logs:
            files.refresh()
            found = chain.from_iterable(reader.items(part) for part in files.parts)
            self._db.execute("BEGIN")
            self._db.executemany(_NOTE, (fact for fact in found if fact is not None))
            self._db.execute("COMMIT")

    def find(self, jobs: Sequence[bytes]) -> dict[bytes, LoggedOutcome]:
        """The outcomes of these jobs, by id. Jobs that the logs do not mention are left out."""
        places = ", ".join("?" * len(jobs))
        rows: dict[bytes, dict[int, tuple[str, bytes]]] = {}
        for id, kind, at, line in self._db.execute(f"SELECT * FROM fact WHERE id IN ({places})", jobs):
            rows.setdefault(id, {})[kind] = (at, line)
        return {id: _outcome(facts) for id, facts in rows.items()}

    def close(self) -> None:
        """Closes the files and the database."""
        self._db.close()
        for files, _ in self._logs:
            files.close()


def _outcome(facts: dict[int, tuple[str, bytes]]) -> LoggedOutcome:
    nothing = ("", b"")
    ended, begun = facts.get(_ENDED, nothing)[0], facts.get(_BEGUN, nothing)[0]
    # A job that was retried after its end has not ended.
    return LoggedOutcome(ended > begun, facts.get(_CHANGED, nothing)[1])


_decoder = msgspec.json.Decoder(_OutcomeLine)


def _read_attempt(line: bytes) -> _Fact | None:
    found = _decoder.decode(line)
    id = ids.parse(found.job)
    return (id, _ENDED, found.time, b"") if found.ended else None


def _read_request(line: bytes) -> _Fact | None:
    found = _decoder.decode(line)
    id = ids.parse(found.job)
    kind = _KINDS.get(found.event)
    if kind == _CHANGED:
        # For its ValueError: a change that cannot be read must not replace what was accepted.
        parse_request(line)
    return None if kind is None else (id, kind, found.time, line if kind == _CHANGED else b"")
