"""A place where the stories happen: an app with a ledger, and masters that are killed in the middle."""

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, json

from tarry.model.duration import microseconds
from tarry.store.opening import open_store
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.testing.history_check import (
    Died,
    Ended,
    HistoryEvent,
    LeaseEnded,
    Put,
    Started,
    check,
    read_ledgers,
)
from tarry.testing.ledger import read_end
from tests.cli.project import Project, alive, until

APP = Path(__file__).with_name("app.py").read_text()


class Line(Struct):
    """What a task told."""

    what: str
    job: str
    attempt: int
    pid: int
    at: float
    epoch: int = 0
    owner: str = ""
    claimed: int = 0

    @property
    def time(self) -> int:
        """Microseconds."""
        return round(self.at * 1e6)


BEGINS = {"began", "dies"}
ENDS = {"ended": "done", "cancelled": "interrupted", "CalledBack": "interrupted", "TimeLimit": "interrupted"}
"""What a task tells at the start and at the end of an attempt. Some tell only the end."""
CLOCKS_DIFFER = 10_000
"""Microseconds by which a client's clock may be behind on a busy machine: a round trip to the store."""


class Scene(Project):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, APP)
        self.write("ledger", "")
        self.told: list[HistoryEvent] = []
        """What the test knows, for the history: puts, kills, and leases that end."""
        self._url = ""

    @property
    def url(self) -> str:
        """Of its store: the file, unless it has another."""
        return self._url or f"sqlite:///{self.database}"

    @url.setter
    def url(self, url: str) -> None:
        self._url = url

    @contextlib.contextmanager
    def store(self) -> Iterator[Store]:
        with contextlib.closing(open_store(self.url)) as store:
            yield store

    def now(self) -> int:
        """The time of its history, in microseconds."""
        return time.time_ns() // 1000

    def put(self, task: str, *args: object, times: int = 1, **options: Any) -> list[str]:
        before = self.now()
        jobs = super().put(task, *args, times=times, **options)
        due = before + microseconds(options.get("delay") or 0)
        self.told += [Put(job, self.now(), options.get("key"), due, task=task) for job in jobs]
        return jobs

    def ledger(self, what: str | None = None) -> list[Line]:
        lines = (self.directory / "ledger").read_bytes().splitlines(keepends=True)
        told = [json.decode(line, type=Line) for line in lines if line.endswith(b"\n")]
        return [line for line in told if what in (None, line.what)]

    def times(self, what: str) -> Counter[str]:
        """How often each job told this."""
        return Counter(line.job for line in self.ledger(what))

    def open(self, gate: str) -> None:
        self.write(gate, "")

    def states(self) -> dict[str, str]:
        return {ids.text(job.id): job.state for job in self.jobs()}

    def all_finished(self) -> bool:
        return all(job.state.finished for job in self.jobs())

    def running(self) -> list[str]:
        """The jobs that workers show to be at."""
        return [job.id for child in self.children() for job in child.running]

    def begun(self, count: int, *, asleep: int | None = None) -> None:
        """Waits until so many attempts have begun; and until all but so many of them only wait."""
        until(lambda: len(self.ledger("began")) >= count)
        if asleep is not None:
            until(lambda: len(self.running()) == count - asleep)

    def ended(self, *jobs: str) -> None:
        """Waits for them. One that was on at two deaths rests before its third attempt, and is hurried here."""
        until(lambda: all(self._ended(id) for id in jobs), 60)

    def _ended(self, id: str) -> bool:
        job = self.job(id)
        if job.crashes == 2 and job.state == "scheduled":
            assert 0 <= job.due - job.state_since - 5_000_000 < 100_000, "longer by what the clock is unsure about"
            # A retry would begin anew if its rest ended meanwhile, and it died.
            self.tarry("jobs", "move", id, "--delay", "0")
        return job.state.finished

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        if number == signal.SIGKILL:
            self.strike(pid)
            until(lambda: not alive(pid))
        else:
            os.kill(pid, number)

    def strike(self, pid: int) -> None:
        """Kills a process, if it is there still, and does not wait for its end."""
        # Before, since others may have its jobs as soon as it is gone.
        self.told.append(Died(self.now(), pid=pid))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def halt(self, pid: int) -> None:
        """Stops a worker for as long as its lease lasts, and longer: others may have its jobs from then on."""
        self.told += [
            LeaseEnded(owner, self.now()) for owner in {line.owner for line in self.ledger() if line.pid == pid}
        ]
        os.kill(pid, signal.SIGSTOP)

    def replaced(self, *gone: int, role: str = "worker") -> list[int]:
        """The pids of the role's processes, once those are replaced."""
        # Counted anew each time: for a moment the one that is gone has its seat still, and the new one its own already.
        return until(lambda: _new(self.pids(role), gone, len(self.board_seats(role))))

    def board_seats(self, role: str) -> list[str]:
        return [child.name for child in self.board().children if child.role == role]

    def check_history(self) -> None:
        """What the tasks told, and what the test and the store know, keeps the promises."""
        with self.store() as store:
            end = list(read_end(store, drained=all(job.state.finished for job in self.jobs())))
        found = check([*self.history(), *self.told, *end], tolerance=CLOCKS_DIFFER)
        assert not found, "\n".join(map(str, found))

    def history(self) -> list[HistoryEvent]:
        """What the tasks told."""
        path, skipped = self.directory / "history", list[str]()
        known = {event.pid for event in self.told if isinstance(event, Died)}
        if not path.exists():
            return list(_attempts(self.ledger(), known))
        return list(read_ledgers([path], skipped))

    def stopped(self) -> None:
        """Ends the master gracefully and checks that nobody stayed."""
        assert self.tarry("stop").status == 0
        until(lambda: not self.processes())


def _new(pids: list[int], gone: tuple[int, ...], count: int) -> list[int]:
    return pids if len(pids) == count and not set(pids) & set(gone) else []


def _attempts(lines: Sequence[Line], killed: Collection[int]) -> Iterator[HistoryEvent]:
    """The starts and ends in a ledger. Who is gone and told no end, and was not killed here, died when it told the
    last."""
    open_attempts: dict[tuple[str, int, str], Line] = {}
    begun, ended = set[tuple[str, int, str]](), set[tuple[str, int, str]]()
    last = {line.pid: line for line in lines}
    for line in lines:
        place = (line.job, line.epoch, line.owner)
        if line.owner and line.what in (*BEGINS, *ENDS) and place not in begun:
            begun.add(place)
            open_attempts[place] = line
            yield Started(line.job, line.epoch, line.owner, line.time, line.pid, line.claimed)
        if line.owner and line.what in ENDS and place not in ended:
            ended.add(place)
            del open_attempts[place]
            yield Ended(line.job, line.epoch, line.owner, line.time, ENDS[line.what])
    for pid in {line.pid for line in open_attempts.values()}.difference(killed):
        if not alive(pid):
            yield Died(last[pid].time, pid=pid)
