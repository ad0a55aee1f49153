"""What a ledger says about a cell: sums over its events, which know nothing of the projects."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tarry.testing.history_events import Died, Ended, FinalState, HistoryEvent, Put, Started, StoreRead

EARLY_BY = 100_000
"""Microseconds before its time at which a job counts as early."""
QUIET = 30_000_000
"""A job whose last attempt began longer ago than this has come to rest."""
POISON = ("die", "hog")
STORED, RUNNING = "stored", "running"
"""The state at the end of a job that has not ended: the store still has it, or a process runs it. Else it is lost."""


@dataclass(frozen=True)
class Poison:
    """The one job that kills its worker each time."""

    attempts: int
    is_over: bool
    is_stored: bool


@dataclass(frozen=True)
class Verdict:
    """Of jobs that were acknowledged, without the poison. Seconds count from the fault."""

    jobs: int
    lost: int
    """Never ended, and the store has no trace of them."""
    waiting: int
    """Not ended when the observation was over, and still in the store or running."""
    twice: int
    """Run to the end more than once."""
    early: int
    early_by: float
    done_after: float
    """When the last of those ended that did."""
    interrupted: int
    """Were in a process that was killed by the fault."""
    again_after: float | None
    """When the last of these began again; None: none did."""
    watched: float
    """For how long it was observed."""
    ticks: int = 0
    doubled: int = 0
    missed: int = 0
    poison: Poison | None = None


@dataclass
class _Attempts:
    """What is known of one job."""

    put: Put
    starts: list[Started]
    ends: list[Ended]
    state: str = ""

    @property
    def is_gone(self) -> bool:
        return self.state not in (STORED, RUNNING)

    @property
    def is_early(self) -> bool:
        return self.early_by > EARLY_BY

    @property
    def early_by(self) -> int:
        return max((self.put.due - start.at for start in self.starts), default=0) if self.put.due else 0


def judge(events: Iterable[HistoryEvent], since: int, schedules: int = 0) -> Verdict:
    """since: the moment of the fault. schedules: how many of `tick-0`, `tick-1` ... were to come once."""
    history = list(events)
    all_jobs = _by_job(history)
    jobs = [job for job in all_jobs if job.put.task not in POISON]
    over = max((event.at for event in history if isinstance(event, StoreRead)), default=since)
    open_jobs = [job for job in jobs if not job.ends]
    deaths = {event.pid: event.at for event in history if isinstance(event, Died)}
    interrupted, again = _interrupted(jobs, deaths)
    ticks = Counter(event.job for event in history if isinstance(event, Ended) and event.job.startswith("tick-"))
    return Verdict(
        jobs=len(jobs),
        lost=sum(job.is_gone for job in open_jobs),
        waiting=sum(not job.is_gone for job in open_jobs),
        twice=sum(len(job.ends) > 1 for job in jobs),
        early=sum(job.is_early for job in jobs),
        early_by=max((job.early_by for job in jobs if job.is_early), default=0) / 1e6,
        done_after=max((job.ends[0].at - since for job in jobs if job.ends), default=0) / 1e6,
        interrupted=interrupted,
        again_after=again,
        watched=(over - since) / 1e6,
        ticks=schedules,
        doubled=sum(count > 1 for count in ticks.values()) if schedules else 0,
        missed=schedules - len(ticks) if schedules else 0,
        poison=next((_poison(job, over) for job in all_jobs if job.put.task in POISON), None),
    )


def _by_job(history: list[HistoryEvent]) -> list[_Attempts]:
    starts: dict[str, list[Started]] = defaultdict(list)
    ends: dict[str, list[Ended]] = defaultdict(list)
    for event in history:
        if isinstance(event, Started):
            starts[event.job].append(event)
        elif isinstance(event, Ended):
            ends[event.job].append(event)
    states = {event.job: event.state for event in history if isinstance(event, FinalState)}
    puts = {event.job: event for event in history if isinstance(event, Put)}
    return [
        _Attempts(
            put,
            sorted(starts[name], key=lambda start: start.at),
            sorted(ends[name], key=lambda end: end.at),
            states.get(name, ""),
        )
        for name, put in puts.items()
    ]


def _interrupted(jobs: list[_Attempts], deaths: dict[int, int]) -> tuple[int, float | None]:
    """How many attempts were in a process as it was killed, and how long the slowest of the jobs took to begin anew."""
    count, again = 0, []
    for job in jobs:
        finished = {(end.epoch, end.owner) for end in job.ends}
        for place, start in enumerate(job.starts):
            died = deaths.get(start.pid)
            if died is None or start.at > died or (start.epoch, start.owner) in finished:
                continue
            count += 1
            again += [(later.at - died) / 1e6 for later in job.starts[place + 1 : place + 2]]
    return count, max(again, default=None)


def _poison(job: _Attempts, over: int) -> Poison:
    last = job.starts[-1].at if job.starts else 0
    return Poison(len(job.starts), job.is_gone or over - last > QUIET, not job.is_gone)
