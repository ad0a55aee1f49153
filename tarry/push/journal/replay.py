"""Restores jobs from request.log that a store has lost, such as a Redis that did not sync its last second.

A job is restored if the store does not know it and the logs do not say that it has ended. The client assigns ids, so a
job that is restored twice exists once. Only one replay at a time works on a store.

What the logs say of jobs after they were accepted: that they have ended, or were changed.

It is kept in a temporary SQLite database, which moves to disk beyond a few megabytes.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from msgspec import Struct, UnsetType

from tarry.client.clock import Clock
from tarry.errors import StoreBusy, StoreError, TarryError
from tarry.model.checks.decoders import json_decoder
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.push.journal.log_files import LineReader, LogFiles, LogPart, Unreadable
from tarry.push.journal.log_lines import RequestLine, format_time, make_job, now, parse_request
from tarry.push.journal.logs import ATTEMPTS, REQUESTS
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.rules.owner import new_name

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


_decoder = json_decoder(_OutcomeLine)


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


BATCH_JOBS, BATCH_BYTES = 1000, 16_000_000
"""Jobs in a batch, and about how many bytes."""
LISTED = 50
LOCK_TTL = 30 * SECOND
"""Microseconds for which other replays are locked out if this process is killed."""
LOCK_TIMEOUT, LOCK_POLL = 60.0, 0.2
"""Seconds to wait for another replay."""
_MOST_LINE = 1024 * 1024  # Bytes of a line besides the body.


class KeyConflict(Struct, frozen=True):
    """A job that is not restored, since another job holds its key."""

    job: str
    task: str
    key: str | None
    holder: str


class ReplayCounts(Struct):
    """How many jobs of each kind."""

    put_back: int = 0
    known: int = 0
    """The store has them."""
    ended: int = 0
    """Delivered or dead, cancelled or deleted, by the logs."""
    expired: int = 0
    """They expired before now."""
    held: int = 0
    misplaced: int = 0
    """They have a key or a lane, and the set of shards has changed."""
    unreadable: int = 0
    """Lines."""


class Replay:
    """Restores jobs of some logs into one store. Call `run()` once.

    logs: directories, whose request.log is read with its rotated files, or single such files. The notify.log beside
    each says which jobs have ended. since: seconds since the epoch. max_body: bytes of a job. dry: changes nothing.
    """

    def __init__(
        self, store: Store, clock: Clock, logs: Sequence[Path], since: float, max_body: int, dry: bool = False
    ) -> None:
        self._store, self._clock, self._dry = store, clock, dry
        # A body that is not JSON is in base64, which is longer than the body.
        self._since, self._most = since, 2 * max(max_body, store.most_apart) + _MOST_LINE
        self._logs = [log / REQUESTS if log.is_dir() else log for log in logs]
        self._name = new_name()
        self.counts = ReplayCounts()
        self.unreadable = Unreadable()
        self.first: list[Job] = []
        """The first few restored jobs."""
        self.conflicts: list[KeyConflict] = []
        """The first few jobs whose key is held."""
        for given, log in zip(logs, self._logs, strict=True):
            if not (log.exists() or (given.is_dir() and any(given.glob(f"{REQUESTS}[.-]*")))):
                raise TarryError(f"{log} is not there: --from names it, or the directory of [push] log")

    def run(self, observe: Callable[[Iterable[RequestLine]], Iterable[RequestLine]] = iter) -> ReplayCounts:
        """Restores the jobs and returns the counts. observe: wraps the iterable of lines, as a progress bar does.

        TarryError, OSError: jobs restored until then stay, and a second run continues.
        """
        # A second replay could restore jobs that the first one restored and that were delivered and pruned since.
        self._lock(LOCK_TIMEOUT)
        try:
            with contextlib.closing(self._ends()) as ends:
                ends.catch_up()
                for requests in _batches(observe(self._requests())):
                    # Renewed, so that it outlasts each batch.
                    self._lock()
                    self._put_back(requests, ends)
        finally:
            self._unlock()
        self.counts.unreadable = self.unreadable.count
        return self.counts

    def _ends(self) -> LoggedOutcomes:
        return LoggedOutcomes(dict.fromkeys(log.parent for log in self._logs), self._since, self._most, self.unreadable)

    def _requests(self) -> Iterator[RequestLine]:
        """The jobs accepted up to now. Later ones are in the store."""
        reader = LineReader(parse_request, format_time(round(self._since * SECOND)), now(), self._most, self.unreadable)
        for log in self._logs:
            with contextlib.closing(_OpenLog(log, self._since)) as opened:
                for part in opened.parts:
                    yield from (line for line in reader.items(part) if line.event == "accepted")

    def _put_back(self, requests: Sequence[RequestLine], ends: LoggedOutcomes) -> None:
        by_id = {ids.parse(line.job): line for line in requests}
        wanted = self._without_ended(list(by_id), ends)
        there = self._store.get(wanted)
        lost = [id for id, job in zip(wanted, there, strict=True) if job is None]
        self.counts.known += len(wanted) - len(lost)
        # A job that the store did not have may have been delivered and pruned since the logs were read.
        ends.catch_up()
        lost = self._without_ended(lost, ends)
        fates = ends.find(lost)
        at = self._clock.now()
        # A job is restored as its newest change left it.
        lines = [parse_request(fates[id].line) if id in fates and fates[id].line else by_id[id] for id in lost]
        self._insert(self._insertable([make_job(line, at) for line in lines], at))

    def _without_ended(self, wanted: list[bytes], ends: LoggedOutcomes) -> list[bytes]:
        fates = ends.find(wanted)
        left = [id for id in wanted if not (id in fates and fates[id].ended)]
        self.counts.ended += len(wanted) - len(left)
        return left

    def _insertable(self, jobs: Sequence[Job], at: int) -> list[Job]:
        """The jobs that may be restored."""
        fresh = [job for job in jobs if not job.expires or job.expires > at]
        fitting = [job for job in fresh if self._store.belongs(job)]
        self.counts.expired += len(jobs) - len(fresh)
        self.counts.misplaced += len(fresh) - len(fitting)
        return fitting

    def _insert(self, jobs: list[Job]) -> None:
        if self._dry or not jobs:
            self._count(jobs)
            return
        stored_ids = self._store.insert(jobs)
        # If the key of a job is held, the store answers with the id of the holder.
        self._count([job for job, id in zip(jobs, stored_ids, strict=True) if job.id == id])
        for job, id in zip(jobs, stored_ids, strict=True):
            if job.id != id:
                self.counts.held += 1
                if len(self.conflicts) < LISTED:
                    self.conflicts.append(KeyConflict(ids.text(job.id), job.task, job.key, ids.text(id)))

    def _count(self, put_back: Sequence[Job]) -> None:
        self.counts.put_back += len(put_back)
        self.first += put_back[: LISTED - len(self.first)]

    def _lock(self, waits: float = 0.0) -> None:
        """Takes or renews the lock of this store. waits: seconds to wait for another replay."""
        end = time.monotonic() + waits
        while not self._dry and not self._store.hold("replay", self._name, (at := self._clock.now()) + LOCK_TTL, at):
            if time.monotonic() >= end:
                raise StoreBusy("another replay is under way on this store: run this one when that has ended")
            time.sleep(LOCK_POLL)

    def _unlock(self) -> None:
        if not self._dry:
            # Without the store the lock ends by itself, after LOCK_TTL.
            with contextlib.suppress(StoreError):
                at = self._clock.now()
                self._store.hold("replay", self._name, at, at)


class _OpenLog:
    """The files to read of one log: all of them, or the one that was named."""

    def __init__(self, log: Path, since: float) -> None:
        self._files = LogFiles(log, since) if log.name == REQUESTS else None
        self.parts: list[LogPart] = self._files.parts if self._files is not None else [LogPart(log)]

    def close(self) -> None:
        for part in self.parts:
            part.close()


def _batches(lines: Iterable[RequestLine]) -> Iterator[list[RequestLine]]:
    batch: list[RequestLine] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line.body_base64) if isinstance(line.body, UnsetType) else memoryview(line.body).nbytes
        if len(batch) == BATCH_JOBS or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
