"""Makes new jobs: encodes the arguments of a call, and applies its options and the settings of its task."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tarry.client.clock import Clock
from tarry.errors import BodyTooLarge, StoreUnavailable
from tarry.model import lifecycle
from tarry.model.attempts import KEPT_FROM_START
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.job import HELD, UNFINISHED, WAITING, Job, with_inherited
from tarry.model.limit import QUEUE, Limit, check_cost_within
from tarry.model.quantity import over_max_body
from tarry.store.rules.base import Store
from tarry.tasks.arguments.options import (
    NO_OPTIONS,
    Options,
    spread,
    with_cost,
    with_labels,
    with_latest,
    with_order,
    with_overrides,
)
from tarry.tasks.call import AnyCall, arguments_of
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.new_job import NewJob
from tarry.tasks.running import labels_to_inherit
from tarry.tasks.shield import shielded


class _UnlistedTask(Struct, frozen=True):
    """Stands for a task that this app does not have; only its workers know the settings."""

    name: str
    queue: str = "default"
    priority: int = 0
    expires: None = None
    keeps_order: bool = False
    holds_when_dead: bool = False
    limits: Mapping[str, Limit] = {}


class JobFactory:
    """Makes the jobs of one client.

    max_body: bytes that the arguments of a job may take in the store. has_outbox: jobs can be kept while the store is
    away. limits: those of queues, by name, which no job must cost more than.
    """

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition[Any, Any]],
        clock: Clock,
        *,
        max_body: int,
        has_outbox: bool,
        limits: Mapping[str, Limit],
    ) -> None:
        self._store, self.tasks, self._clock = store, tasks, clock
        self.max_body = max_body
        """Bytes of the arguments of a job that come from other programs."""
        self.largest = store.most_apart or max_body
        """Bytes of the arguments of a job."""
        self._has_outbox, self._limits = has_outbox, limits

    def make(
        self,
        task: TaskDefinition[Any, Any],
        body: bytes,
        lane: str | None,
        options: Options,
        headers: bytes = b"",
        later: float | None = None,
    ) -> Job:
        """The job of one call with encoded arguments; BodyTooLarge, StoreUnavailable. Call it inside `shielded`.
        later: of `Options.later`."""
        if later is not None:
            options = options.later(later)
        # A time that the caller gave counts more than the task's own.
        if task.due_after and options.delay is None and options.at is None:
            options = replace(options, delay=task.due_after / SECOND)
        if options is not NO_OPTIONS:
            if options.per is not None:
                raise ValueError(f"{task.name}: per= says whom a broadcast is for: .using(per=...).broadcast(...)")
            headers = task.add_overrides(headers, options) if options.has_overrides else headers
        job = self._fill_in(task, body, lane, options, headers)
        return job if task.runner is None else replace(job, headers=task.runner.add_headers(job.headers, job.due))

    def make_from(self, new: NewJob) -> Job:
        """The job of a call that has passed the middleware; ArgumentError."""
        task, body, lane = new.definition, *encode_call(new.definition, new.args, new.kwargs)
        headers = new.encode_headers()
        options = task.with_cost(new.options, new.args, new.kwargs)
        with shielded:
            return self.make(task, body, lane, options, headers, new.later)

    def make_many(
        self,
        task: TaskDefinition[Any, Any],
        calls: Iterable[AnyCall[Any]],
        options: Options,
        over: Duration | None = None,
    ) -> list[Job]:
        """The jobs of many calls with the same options. over: they are due evenly over that time."""
        encode, lane_of = task.codec.encode, task.lane
        arguments = [arguments_of(task, call) for call in calls]
        encoded = [(encode(*each), lane_of and lane_of(*each)) for each in arguments]
        spread_over = spread(over, len(encoded))
        priced = [task.with_cost(options, *each) for each in arguments] if task.cost else [options] * len(encoded)
        with shielded:
            if over is not None or task.cost is not None:
                each_call = zip(encoded, priced, spread_over, strict=True)
                return [self.make(task, *one, of, later=later) for one, of, later in each_call]
            # Options and time are worked out once; the other jobs differ only in body, lane and id.
            first = [self.make(task, body, lane, options) for body, lane in encoded[:1]]
            return first + [self._make_alike(task, first[0], body, lane) for body, lane in encoded[1:]]

    def make_by_name(self, name: str, body: bytes, options: Options) -> Job:
        """The job of a task by name, with encoded arguments. They are checked if the app has the task."""
        task = self.tasks.get(name)
        if task is None:
            headers = with_overrides(name, b"", options) if options.has_overrides else b""
            with shielded:
                return self._fill_in(_UnlistedTask(name), body, None, options, headers)
        args, kwargs = task.codec.decode(body)
        # Decoded first: limit_by= gets the arguments as the task will.
        lane = task.lane and task.lane(args, kwargs)
        options = task.with_cost(options, args, kwargs)
        with shielded:
            return self.make(task, body, lane, options)

    def _fill_in(
        self,
        task: TaskDefinition[Any, Any] | _UnlistedTask,
        body: bytes,
        lane: str | None,
        options: Options,
        headers: bytes,
    ) -> Job:
        if len(body) > self.largest:
            raise self._body_too_large(task.name, body)
        now = self._now()
        due = max(options.due(now, self._clock.unsure), 0)
        if labels := with_inherited(options.labels, labels_to_inherit()):
            headers = with_labels(task.name, headers, labels)
        if options.cost is not None:
            headers = self._add_cost(task, headers, options)
        if options.max_delay is not None:
            headers = with_latest(task.name, headers, now + microseconds(options.max_delay))
        if task.keeps_order and lane is not None:
            headers = with_order(task.name, headers, lane, holds=task.holds_when_dead)
        expires = task.expires if options.expires is None else options.expires
        key = options.held_key
        return Job(
            self._store.new_id(task.name, key, lane),
            task.name,
            body,
            options.queue or task.queue,
            task.priority if options.priority is None else options.priority,
            due,
            lifecycle.initial_state(due, now),
            state_since=now,
            # From when it is due, not from now: a delay must not use up the time to start.
            expires=0 if expires is None else due + microseconds(expires),
            key=key,
            key_ttl=UNFINISHED if key is None else self._key_ttl(options),
            key_held_until=0 if key is None else HELD,
            lane=lane,
            headers=headers,
            attempts=KEPT_FROM_START if options.keeps_attempts else b"",
        )

    def _key_ttl(self, options: Options) -> int:
        # With leading=True it is also the delay of a job that is not the first, which must not be too short.
        return options.key_ttl + (self._clock.unsure if options.leading else 0)

    def _add_cost(self, task: TaskDefinition[Any, Any] | _UnlistedTask, headers: bytes, options: Options) -> bytes:
        cost, queue = options.cost or 1, QUEUE + (options.queue or task.queue)
        limits = {**task.limits, queue: self._limits[queue]} if queue in self._limits else task.limits
        check_cost_within(cost, limits)
        return headers if cost == 1 else with_cost(task.name, headers, cost)

    def _make_alike(self, task: TaskDefinition[Any, Any], job: Job, body: bytes, lane: str | None) -> Job:
        """Another job of the same call of `enqueue_many`."""
        if len(body) > self.largest:
            raise self._body_too_large(job.task, body)
        headers = job.headers
        if task.keeps_order and lane is not None:
            headers = with_order(job.task, headers, lane, holds=task.holds_when_dead)
        return replace(job, id=self._store.new_id(job.task, job.key, lane), body=body, lane=lane, headers=headers)

    def _now(self) -> int:
        try:
            return self._clock.now()
        except StoreUnavailable:
            if not self._has_outbox:
                raise
            # The store was never asked for its time in this process. For jobs in the outbox this host's time will do.
            return time.time_ns() // 1000

    def require_in_store(self, what: str, body: bytes) -> None:
        """BodyTooLarge for arguments that are part of another job's record, and larger than that may be. what:
        `mail: the arguments take`."""
        if len(body) > self.max_body:
            raise BodyTooLarge(over_max_body(what, len(body), self.max_body))

    def _body_too_large(self, task: str, body: bytes) -> BodyTooLarge:
        return BodyTooLarge(over_max_body(f"{task}: the arguments take", len(body), self.largest))


def unique_for(job: Job) -> Duration:
    """`unique_for=` of the call that made the job, which has a key."""
    names = {WAITING: "waiting", UNFINISHED: "unfinished"}
    return names.get(job.key_ttl) or job.key_ttl / SECOND


def encode_call(
    task: TaskDefinition[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[bytes, str | None]:
    """The body and the lane of a call; ArgumentError. Runs the user's code (limit_by=, encoders): not in `shielded`."""
    # Encoded first: limit_by= is not to be asked about arguments that do not fit.
    body = task.codec.encode(args, kwargs)
    return body, task.lane and task.lane(args, kwargs)
