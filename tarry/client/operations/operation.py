"""What an operation is: one change for all jobs that match a filter, and how far it has come."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from tarry.client.bulk import find_pages
from tarry.client.client import Client
from tarry.client.enqueue_listener import JobEvent
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import SECOND, microseconds
from tarry.model.history.counting import Fingerprint
from tarry.model.job import MAX_PRIORITY, MOST_LABELS, Job, LabelText, State, parse_labels
from tarry.model.quantity import Short
from tarry.store.queries.job_search import (
    HAVE_ERRORS,
    MOST_TEXTS,
    JobSearch,
    SearchText,
    flow_range,
    id_of_moment,
    is_found,
    parse_moment,
)
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Tally
from tarry.store.rules.name_pattern import fits
from tarry.tasks.arguments.options import Name

if TYPE_CHECKING:
    from tarry.client.job_records import JobTerms

BulkAct = Literal["retry", "cancel", "delete", "move"]
OperationState = Literal["waiting", "running", "stopping", "done", "stopped", "failed"]
BulkRule = Callable[[Job, int], Change]

# Bounded, so that microseconds of it fit every store.
_FilterSeconds = Annotated[float, Meta(ge=0, le=1e11)]
_ENDED = frozenset(("done", "stopped", "failed"))
_SAME = ("queue", "key", "older", "created_since", "created_until", "text", "error", "flow", "node")
"""Fields that are the same in `JobFilter` and `JobTerms`."""
EVENTS: Mapping[str, JobEvent] = {"retry": "retried", "cancel": "cancelled", "delete": "deleted", "move": "moved"}
"""What listeners are told of a job for which each act was done."""


class JobFilter(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which jobs an operation is for; a field that is left out matches all."""

    queue: Name | None = None
    task: Name | None = None
    key: Name | None = None
    states: Annotated[tuple[State, ...], Meta(max_length=len(State))] = ()
    older: float | Short | None = None
    """In their state for longer than this: seconds, or text such as "1h"."""
    since: _FilterSeconds | None = None
    """In their state since this time (seconds since the epoch) or later."""
    created_since: float | Short | None = None
    """Made then or later: how long ago, such as "2h" or seconds, or a time such as 2026-11-24T16:00Z."""
    created_until: float | Short | None = None
    """Made before then."""
    text: Annotated[str, Meta(max_length=200)] = ""
    """Text in their arguments."""
    labels: Annotated[tuple[LabelText, ...], Meta(max_length=MOST_LABELS)] = ()
    """With all of these labels, such as `customer=7`."""
    error: Fingerprint | None = None
    """With an error of this group, as `tarry errors` names it."""
    task_pattern: Name | None = None
    """Of tasks whose names fit this pattern, as in `shop.*`: `*` stands for any characters."""
    until: _FilterSeconds | None = None
    """In their state since before this time (seconds since the epoch)."""
    error_text: Annotated[tuple[SearchText, ...], Meta(max_length=MOST_TEXTS)] = ()
    """With an error that has all of these texts in its class or message."""
    flow: Short | None = None
    """Of the flow with this id, or that of any of its jobs."""
    node: SearchText = ""
    """What people call a job in its flow: its label, or else its task."""

    @classmethod
    def of(cls, terms: "JobTerms", now: int) -> "JobFilter":
        """The filter of these terms, but for `id` and `parent`; ValueError. now: microseconds."""
        since, until = (None if one is None else _seconds_at(one, now) for one in (terms.since, terms.until))
        same = {name: getattr(terms, name) for name in _SAME}
        same["task_pattern" if "*" in (terms.task or "") else "task"] = terms.task
        texts = tuple(terms.error_text)
        return cls(
            **same, states=tuple(terms.state), labels=tuple(terms.label), since=since, until=until, error_text=texts
        )

    def terms(self) -> "JobTerms":
        """The same as people write it."""
        from tarry.client.job_records import JobTerms  # noqa: PLC0415 - few operations are shown

        since, until = (None if one is None else _written_moment(one) for one in (self.since, self.until))
        same = {name: getattr(self, name) for name in _SAME} | {"task": self.task or self.task_pattern}
        texts = list(self.error_text)
        return JobTerms(
            **same, state=list(self.states), label=list(self.labels), since=since, until=until, error_text=texts
        )

    @property
    def matches_all(self) -> bool:
        """Whether it narrows nothing."""
        return self == JobFilter()

    def query(self, now: int) -> Query:
        """The query that finds these jobs, and others that `search` tells from them; ValueError. now: microseconds."""
        if self.task is not None and self.task_pattern is not None:
            raise ValueError("task and task_pattern both say of which tasks: give one of them")
        after, until = (
            b"" if one is None else id_of_moment(parse_moment(one, now))
            for one in (self.created_since, self.created_until)
        )
        if self.flow is not None:
            first, last = flow_range(ids.parse(self.flow))
            after, until = max(after, first), min(until or last, last)
        return Query(
            self.states or (HAVE_ERRORS if self.error or self.error_text else ()),
            self.queue,
            self.task,
            self.key,
            self._before(now),
            after,
            until=until,
            tasks=() if self.task_pattern is None else (self.task_pattern,),
            labels=parse_labels(self.labels),
        )

    def search(self, now: int) -> JobSearch:
        """What to look for in any store; ValueError. now: microseconds."""
        return JobSearch(
            self.query(now),
            self.text,
            since=round((self.since or 0) * SECOND),
            error=self.error or "",
            error_text=self.error_text,
            node=self.node,
        )

    def _before(self, now: int) -> int | None:
        """They are in their state since before this time; None: since any."""
        older = None if self.older is None else now - microseconds(self.older, "older")
        until = None if self.until is None else round(self.until * SECOND)
        return min((one for one in (older, until) if one is not None), default=None)

    @property
    def is_counted(self) -> bool:
        """Whether the store's counts tell how many jobs match."""
        return self == JobFilter(self.queue, self.task, states=self.states, task_pattern=self.task_pattern)

    def count(self, tallies: Iterable[Tally]) -> int:
        """How many jobs match, of what the store counts: by queue, task and state."""
        return sum(
            tally.count
            for tally in tallies
            if self.queue in (None, tally.queue)
            and self.task in (None, tally.task)
            and (self.task_pattern is None or fits((self.task_pattern,), tally.task))
            and (not self.states or tally.state in self.states)
        )


def _seconds_at(moment: float | str, now: int) -> float:
    return max(0, parse_moment(moment, now)) / SECOND


def _written_moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def find_matching(client: Client, filter: JobFilter) -> Iterator[list[Job]]:
    """The jobs that match, page by page; no page is empty. ValueError, StoreError."""
    search = filter.search(client.clock.now())
    pages = find_pages(client.store, search.query)
    return (found for page in pages if (found := [job for job in page if is_found(job, search)]))


def count_jobs(client: Client, filter: JobFilter) -> int:
    """How many jobs match. By state, queue and task alone the store counts; else all that match are read."""
    if filter.is_counted:
        return filter.count(client.store.counts())
    return sum(map(len, find_matching(client, filter)))


class MoveTarget(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where `move` puts a waiting job; a field that is left out stays as it is."""

    queue: Name | None = None
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None = None


class Operation(Struct, frozen=True, omit_defaults=True):
    """As its cell keeps it. Times are microseconds since the epoch, by the store's clock; 0: none."""

    id: str
    act: BulkAct
    filter: JobFilter
    target: MoveTarget = MoveTarget()
    """Of `move` only."""
    dry_run: bool = False
    """Counts the jobs that match, and changes none."""
    reason: str = ""
    """Why jobs are cancelled."""
    caller: str = ""
    """Who asked for it."""
    state: OperationState = "waiting"
    created: int = 0
    ended: int = 0
    total: int | None = None
    """About how many jobs there were to look at when it began; None: not known."""
    matched: int = 0
    """Jobs that matched, up to now."""
    changed: int = 0
    """Of those, the ones that were changed. The others had changed before, or their state does not allow it."""
    after: bytes = b""
    """The last job that it looked at."""
    owner: str = ""
    """The process that runs it."""
    lease: int = 0
    """Until when no other process takes it up."""
    trouble: str = ""
    """Why it failed."""
    sealed: bytes = b""
    """What somebody typed into it, where that is sealed and cannot be opened here."""

    @property
    def is_ended(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.state in _ENDED


class OperationRecord(Struct, frozen=True):
    """What people and programs see of an operation. Times are seconds since the epoch; null: not yet."""

    id: str
    act: BulkAct
    filter: JobFilter
    target: MoveTarget | None
    dry_run: bool
    state: OperationState
    total: int | None
    matched: int
    changed: int
    caller: str
    created: float
    ended: float | None
    trouble: str | None

    @classmethod
    def of(cls, operation: Operation) -> "OperationRecord":
        """The record of an operation."""
        return cls(
            operation.id,
            operation.act,
            operation.filter,
            operation.target if operation.act == "move" else None,
            operation.dry_run,
            operation.state,
            operation.total,
            operation.matched,
            operation.changed,
            operation.caller,
            operation.created / SECOND,
            operation.ended / SECOND or None,
            operation.trouble or None,
        )


def rule_of(operation: Operation, client: Client) -> BulkRule:
    """What becomes of each job, as a rule of the lifecycle."""
    match operation.act:
        case "retry":
            return lifecycle.run_now
        case "cancel":
            return lambda job, now: client.cancel_change(job, now, operation.reason)
        case "delete":
            return lambda job, now: lifecycle.forget(job)
        case "move":
            to = operation.target
            return lambda job, now: lifecycle.move(job, now, queue=to.queue, priority=to.priority)
