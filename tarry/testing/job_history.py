"""A history by job: the events of each, and how long each of its attempts surely held it."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, TypeVar

from msgspec import Struct

from tarry.testing.history_events import (
    FINAL_OUTCOMES,
    Died,
    Ended,
    FinalState,
    FlowEnded,
    HistoryEvent,
    HistorySum,
    LeaseEnded,
    Leftover,
    LimitSet,
    NodeOf,
    Put,
    PutUnknown,
    RunAgain,
    Started,
    StoreDied,
    StoreRead,
    Withdrawn,
)

_E = TypeVar("_E", bound=HistoryEvent)
_NONE: list[Any] = []
NEVER = 2**62
"""Later than any time."""
KILL_TAKES = 1_000_000
"""Microseconds within which a process dies that somebody kills; in that time it may begin further attempts."""


class Outages:
    """When owners and processes stopped to hold their jobs: they died, or their lease ran out."""

    def __init__(self) -> None:
        self._deaths: dict[str | int, list[int]] = {}
        self._lease_ends: dict[str, list[int]] = {}

    def add(self, event: Died | LeaseEnded) -> None:
        """Takes one; in any order, before the first question."""
        if isinstance(event, LeaseEnded):
            self._lease_ends.setdefault(event.owner, []).append(event.at)
            return
        for name in (event.owner, event.pid):
            if name:
                self._deaths.setdefault(name, []).append(event.at)

    def sort(self) -> None:
        """Called once, after the last one."""
        for times in (*self._deaths.values(), *self._lease_ends.values()):
            times.sort()

    def death(self, start: Started) -> int:
        """When the process of an attempt died; NEVER."""
        since = start.at - KILL_TAKES
        found = min(_first_from(self._deaths, name, since) for name in (start.owner, start.pid))
        return max(start.at, found)

    def lease_end(self, start: Started) -> int:
        """When its owner's lease ran out, after the claim; NEVER."""
        return _first_from(self._lease_ends, start.owner, start.claimed or start.at)


def _first_from(times: dict[Any, list[int]], name: str | int, start: int) -> int:
    of_name = times.get(name, ())
    place = bisect_left(of_name, start)
    return of_name[place] if place < len(of_name) else NEVER


class AttemptSpan(Struct, frozen=True, gc=False):
    """An attempt that began. until: up to then it was surely running; NEVER if nothing tells that it ended. withdrawn:
    when its job was cancelled meanwhile. crashed: its process or its lease ended before it did."""

    start: Started
    end: Ended | None
    until: int
    withdrawn: int
    crashed: bool

    @property
    def claimed(self) -> int:
        """When the store gave it, as far as is known."""
        return self.start.claimed or self.start.at

    @property
    def is_valid(self) -> bool:
        """Whether it began while its owner still had the job."""
        return min(self.until, self.withdrawn) >= self.start.at

    @property
    def owned_until(self) -> int:
        """Up to then nobody else may have its job."""
        return min(self.until, self.withdrawn)


def _time_of(event: Any) -> int:
    return getattr(event, "at", NEVER)


class JobHistory:
    """The events of one job."""

    def __init__(self, id: str) -> None:
        self.id = id
        self._events: dict[type[Any], list[Any]] = {}
        self.attempts: list[AttemptSpan] = []
        """Sorted by their start."""

    def of(self, kind: type[_E]) -> list[_E]:
        """Those of one kind, by time. Not to be changed."""
        return self._events.get(kind, _NONE)

    def add(self, event: HistoryEvent) -> None:
        """Takes an event; in any order, before `build`."""
        self._events.setdefault(type(event), []).append(event)

    @cached_property
    def put(self) -> Put | None:
        """The first acknowledged put."""
        return next(iter(self.of(Put)), None)

    @cached_property
    def final(self) -> FinalState | None:
        """What the store says at the end."""
        return next(iter(self.of(FinalState)), None)

    @cached_property
    def ends(self) -> list[Ended]:
        """All ends, by time."""
        return self.of(Ended)

    @property
    def is_logged(self) -> bool:
        """Whether its starts and ends are in the history."""
        return self.put.logged if self.put is not None else bool(self.attempts)

    @cached_property
    def revivals(self) -> list[int]:
        """When somebody had it run anew."""
        return [again.at for again in self.of(RunAgain)]

    def is_revived(self, since: int, until: int = NEVER) -> bool:
        """Whether somebody had it run anew in that time."""
        place = bisect_left(self.revivals, since)
        return place < len(self.revivals) and self.revivals[place] <= until

    def final_ends(self) -> Iterator[Ended]:
        """The ends after which nothing follows by itself."""
        return (end for end in self.ends if end.outcome in FINAL_OUTCOMES)

    def build(self, outages: Outages) -> None:
        """Sorts the events and finds the attempts; called once, after the last event."""
        for events in self._events.values():
            if len(events) > 1:
                events.sort(key=_time_of)
        ends: dict[tuple[int, str], Ended] = {}
        for end in self.ends:
            ends.setdefault((end.epoch, end.owner), end)
        withdrawn = [one.at for one in self.of(Withdrawn)]
        self.attempts = [
            _span(start, ends.get((start.epoch, start.owner)), withdrawn, outages) for start in self.of(Started)
        ]


def _span(start: Started, end: Ended | None, withdrawn: list[int], outages: Outages) -> AttemptSpan:
    lost_at = min(outages.death(start), outages.lease_end(start))
    ended_at = end.at if end is not None else NEVER
    place = bisect_left(withdrawn, start.claimed or start.at)
    withdrawn_at = withdrawn[place] if place < len(withdrawn) else NEVER
    return AttemptSpan(start, end, min(lost_at, ended_at), withdrawn_at, lost_at < ended_at)


class HistoryIndex:
    """A whole history, by job and by kind. Memory grows with the number of events."""

    def __init__(self, history: Iterable[HistoryEvent]) -> None:
        self.jobs: dict[str, JobHistory] = {}
        self.limits: dict[str, list[LimitSet]] = {}
        self.nodes: list[NodeOf] = []
        self.flow_ends: dict[str, list[FlowEnded]] = {}
        self.sums: list[HistorySum] = []
        self.leftovers: list[Leftover] = []
        self.read: StoreRead | None = None
        self.count = 0
        """How many events there are."""
        self._outages = Outages()
        for event in history:
            self._add(event)
            self.count += 1
        self._build()

    def _add(self, event: HistoryEvent) -> None:
        match event:
            case Died() | LeaseEnded():
                self._outages.add(event)
            case LimitSet():
                self.limits.setdefault(event.name, []).append(event)
            case NodeOf():
                self.nodes.append(event)
            case FlowEnded():
                self.flow_ends.setdefault(event.flow, []).append(event)
            case HistorySum():
                self.sums.append(event)
            case Leftover():
                self.leftovers.append(event)
            case StoreRead():
                self.read = event
            case StoreDied():
                # What it explains is for `Excuses` to say.
                pass
            case _:
                job = self.jobs.get(event.job)
                if job is None:
                    job = self.jobs[event.job] = JobHistory(event.job)
                job.add(event)

    def _build(self) -> None:
        self._outages.sort()
        for job in self.jobs.values():
            job.build(self._outages)
        for limits in self.limits.values():
            limits.sort(key=lambda event: event.at)
        for ends in self.flow_ends.values():
            ends.sort(key=lambda event: event.at)

    def puts(self, task: str = "") -> list[JobHistory]:
        """The jobs of a task (empty: of all) that were put, or may have been."""
        return [job for job in self.jobs.values() if any(task in ("", put) for put in _tasks_put(job))]


def _tasks_put(job: JobHistory) -> list[str]:
    return [one.task for one in job.of(Put)] + [one.task for one in job.of(PutUnknown)]
