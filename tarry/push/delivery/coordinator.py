"""What the deliveries of one worker share: a sender for each event loop, and the state of the endpoints.

A thread keeps that state in step with the store, so that no delivery waits for the store.

What the coordinator read from the store. It compares two snapshots and handles only what changed.

There may be thousands of endpoints, of which few are in use.
"""

import asyncio
import contextlib
import logging
import math
import resource
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tarry.client.clock import Clock
from tarry.client.tasks.task import Task
from tarry.config.config import Config
from tarry.errors import ConfigError, StoreError
from tarry.keeper.limits import BY_HAND
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.job import State as JobState
from tarry.model.limit import TASK, Limit
from tarry.push.delivery.cancel import report_sent, reported_sent
from tarry.push.delivery.delivery_slots import Slots
from tarry.push.delivery.delivery_verdict import Again, Delivered, DeliveryVerdict, Disabled, judge
from tarry.push.endpoint import endpoint_cells, flow
from tarry.push.endpoint.endpoint_settings import Endpoint
from tarry.push.endpoint.flow import INITIAL, FlowState, Observed
from tarry.push.http.address_guard import AddressGuard
from tarry.push.http.failure import Failure, FailureKind
from tarry.push.http.response import HttpResponse
from tarry.store.rules.base import Store
from tarry.store.shared.backoff import Backoff

if TYPE_CHECKING:
    from tarry.push.http.http_sender import HttpRequest, Sender, SendLimits
from collections.abc import Mapping, Set

from msgspec import Struct


class StoreSnapshot(Struct):
    """The store at one moment."""

    endpoints: Mapping[str, Endpoint]
    cells: Mapping[str, bytes]
    """The flow states, as stored."""
    limits: dict[str, Limit]
    by_hand: Set[str]
    """Names of limits that somebody has set by hand."""
    most: int
    """How many requests one endpoint may have at once here."""

    def changed_since(self, last: "StoreSnapshot | None") -> set[str]:
        """Names of endpoints that differ from the last snapshot in anything."""
        # The bound applies to every endpoint.
        if last is None or last.most != self.most:
            return set(self.endpoints)
        # The catalog keeps the object of an unchanged endpoint, so no settings are compared.
        names = {name for name, endpoint in self.endpoints.items() if last.endpoints.get(name) is not endpoint}
        names |= {name for name, _ in self.cells.items() ^ last.cells.items()}
        names |= {_task_of(name) for name, _ in self.limits.items() ^ last.limits.items()}
        return names | {_task_of(name) for name in self.by_hand ^ last.by_hand}


def _task_of(limit: str) -> str:
    """The name of the task that a limit belongs to."""
    return limit.removeprefix(BY_HAND).partition(":")[2]


log = logging.getLogger("tarry.push")

TICK = 0.5
"""Seconds between two updates, at least. More if one takes over a twentieth of that in CPU time."""
# Failures that say nothing about the endpoint.
_OWN_FAILURES = (FailureKind.REQUEST, FailureKind.FORBIDDEN, FailureKind.LOCAL, FailureKind.REDIRECT)
MOST_MISSED = 1000
MOST_INTERRUPTED = 10_000
JOIN_TIMEOUT = 5.0


class Catalog(Protocol):
    """The HTTP tasks of an app, as far as their deliveries go; `HttpTaskCatalog` is one."""

    config: Callable[[], Config]
    tasks: MutableMapping[str, Task[Any, Any]]
    trust: bytes
    """Certificates of authorities that are trusted besides the system's."""

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """All endpoints, by name."""

    def is_configured(self, name: str) -> bool:
        """Whether the configuration has this task."""

    def sync(self, store: Store) -> None:
        """Updates the tasks from the store; StoreError."""

    def remove_coordinator(self, coordinator: "DeliveryCoordinator") -> None:
        """Forgets a coordinator that was closed."""


class DeliveryCoordinator:
    """Coordinates the deliveries of one worker; a `DeliveryPort`."""

    def __init__(self, catalog: Catalog, store: Store, slots: int, clock: Clock | None = None) -> None:
        self._catalog, self._store, self._slots = catalog, store, slots
        self._clock = clock or Clock(store.time)
        self._guard = AddressGuard(catalog.config().push.allow)
        self.most_result = catalog.config().max_body
        self._senders: dict[asyncio.AbstractEventLoop, Sender] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.slots = Slots(slots)
        self._observed: dict[str, Observed] = {}
        self._interrupted: deque[tuple[Job, bool]] = deque()
        """Interrupted attempts that the store does not know of yet, and whether each had been sent."""
        self._gone: dict[str, str] = {}
        """Endpoints that answered that they are gone, with the reason."""
        self._paused: dict[str, tuple[float, bool]] = {}
        """By endpoint: the end of its pause, microseconds since the epoch; and whether the store holds its jobs."""
        self._last_snapshot: StoreSnapshot | None = None
        """None: the last update did not finish."""
        self._offset = 0
        """Microseconds that the store's clock is ahead of this host's."""
        self._missed: dict[str, float] = {}
        """By name: when a task was last looked for in vain."""
        self._lock = threading.Lock()
        self._wake, self._closed = threading.Event(), False
        self._thread: threading.Thread | None = None
        self._backoff = Backoff(log, "HTTP tasks: the store is back")

    def find(self, name: str) -> Task[Any, Any] | None:
        """The HTTP task of that name, if it was registered since. The pump asks for tasks that it does not know."""
        now = time.monotonic()
        # Many jobs of one unknown task read the store only once per tick.
        if now - self._missed.get(name, -math.inf) < TICK:
            return None
        if len(self._missed) >= MOST_MISSED:
            # The names come from jobs, so there may be any number of them.
            self._missed.clear()
        self._missed[name] = now
        try:
            self._catalog.sync(self._store)
        except StoreError:
            return None
        return self._catalog.tasks.get(name)

    def start(self, at_once: bool = True) -> None:
        """Starts the thread. at_once: the first update is done before this returns; StoreError if the store is away."""
        with self._lock:
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name="tarry-push", daemon=True)
        _raise_file_limit()
        if at_once:
            self._tick()
        else:
            self._wake.set()
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, which writes the last observations to the store, if that is reachable."""
        self._catalog.remove_coordinator(self)
        self._closed = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN_TIMEOUT)

    def now(self) -> int:
        """Microseconds since the epoch, by the store's clock."""
        # Computed, since no delivery may wait for the store.
        return time.time_ns() // 1000 + self._offset

    def pause_for(self, name: str) -> float | None:
        """See `DeliveryPort`."""
        until, stored = self._paused.get(name, (0.0, False))
        left = until - self.now()
        if left <= 0:
            return None
        # Bounded: the pause of a disabled endpoint has no end, but may be lifted at any time.
        return 0.0 if stored else min(left / SECOND, 10.0)

    def send(self, request: "HttpRequest", limits: "SendLimits") -> Coroutine[Any, Any, HttpResponse | Failure]:
        """Sends with the sender of the running loop."""
        loop = asyncio.get_running_loop()
        sender = self._senders.get(loop)
        if sender is None:
            sender = self._open_sender(loop)
        return sender.send(request, limits)

    def judge(self, endpoint: Endpoint, came: HttpResponse | Failure) -> DeliveryVerdict:
        """See `DeliveryPort`."""
        verdict = judge(endpoint, came, time.time())
        self._observe(endpoint.name, came, verdict)
        return verdict

    def note_interrupted(self, job: Job, sent: bool) -> None:
        """See `DeliveryPort`."""
        # While the store is away, nothing takes them out.
        if len(self._interrupted) < MOST_INTERRUPTED:
            self._interrupted.append((job, sent))
            self._wake.set()

    def _open_sender(self, loop: asyncio.AbstractEventLoop) -> "Sender":
        from tarry.push.http.http_sender import Sender  # noqa: PLC0415 - brings the HTTP client

        sender = self._senders[loop] = Sender(self._guard, self._catalog.trust)
        # The set keeps the task alive: a loop has only weak references to its tasks.
        self._closing.add(loop.create_task(self._close_with_loop(loop, sender)))
        return sender

    async def _close_with_loop(self, loop: asyncio.AbstractEventLoop, sender: "Sender") -> None:
        """Closes the sender when the loop ends."""
        try:
            # Never done: the wait ends when the end of the loop cancels its tasks.
            await loop.create_future()
        finally:
            del self._senders[loop]
            await sender.close()

    def _observe(self, name: str, came: HttpResponse | Failure, verdict: DeliveryVerdict) -> None:
        seen = self._observed.setdefault(name, Observed())
        done = isinstance(verdict, Delivered)
        failed = not done and came.kind not in _OWN_FAILURES if isinstance(came, Failure) else came.status >= 500
        busy = isinstance(verdict, Again) and verdict.busy
        if isinstance(verdict, Again) and verdict.after:
            seen.pause = max(seen.pause, self.now() + verdict.after)
        seen.busy += busy
        if failed:
            seen.row += 1
            seen.why = verdict.reason
        # A refusal counts as well: the endpoint answers, and is not overloaded.
        elif not busy and (done or isinstance(came, HttpResponse)):
            seen.well += 1
            seen.row = 0
        if isinstance(verdict, Disabled):
            seen.why = verdict.reason
            self._gone[name] = verdict.reason
            # At once, before the store knows of it.
            self._paused[name] = (math.inf, False)
        # Not only at the next tick: until the store holds the jobs back, each is claimed in vain.
        if seen.pause or seen.row >= flow.FAILURES or self._gone:
            self._wake.set()

    def _run(self) -> None:
        pause = TICK
        while not self._closed:
            self._wake.wait(pause)
            self._wake.clear()
            began = time.thread_time()
            try:
                self._tick()
            except StoreError as error:
                if self._backoff.fail(time.monotonic()):
                    log.error("HTTP tasks: %s; trying again", error)
                self._wait_for_store()
                continue
            except Exception as error:
                # Without this thread the tasks would stay as they are now.
                if self._backoff.fail(time.monotonic()):
                    log.critical("HTTP tasks: a step failed; trying again", exc_info=error)
                self._wait_for_store()
                continue
            self._backoff.succeed()
            # Updates take at most 5 % of a processor. Waiting for a slow store does not count: it costs no CPU time.
            pause = max(TICK, 20 * (time.thread_time() - began))
        with contextlib.suppress(StoreError):
            self._tick()

    def _wait_for_store(self) -> None:
        """Waits until the next try is due or the coordinator is closed. Other wake-ups do not end the wait."""
        while not self._closed and (left := self._backoff.left(time.monotonic())):
            self._wake.wait(left)
            self._wake.clear()

    def _tick(self) -> None:
        """Updates the tasks, the flow states and the limits, in both directions."""
        now = self._clock.now()
        self._offset = now - time.time_ns() // 1000
        # First, so that the sync below finds the task disabled.
        self._disable_gone()
        self._report_interrupted()
        self._catalog.sync(self._store)
        endpoints = self._catalog.endpoints
        seen, self._observed = self._observed, {}
        limits = {name: limit for name, (limit, _) in self._store.limits().items()}
        by_hand = self._store.kv_list(BY_HAND).keys() if endpoints else set[str]()
        look = StoreSnapshot(
            endpoints,
            endpoint_cells.read_cells(self._store, endpoint_cells.FLOW_CELL),
            limits,
            by_hand,
            self._max_concurrency(endpoints),
        )
        for name, mine in self.slots.pop_crowded(endpoints).items():
            seen.setdefault(name, Observed()).room = mine
        self._update_endpoints(look, seen, now)
        for name in self._paused.keys() - endpoints.keys() - self._gone.keys():
            self._paused.pop(name, None)

    def _update_endpoints(self, look: StoreSnapshot, seen: dict[str, Observed], now: int) -> None:
        """Updates the endpoints that changed, were used, or are paused."""
        minded = look.changed_since(self._last_snapshot) | seen.keys() | self._paused.keys()
        # Set again at the end: if the store fails before, the next update looks at all endpoints.
        self._last_snapshot = None
        for name, endpoint in look.endpoints.items():
            if name in minded:
                state = self._advance_flow(endpoint, look.cells.get(name), seen.get(name, Observed()), look.most, now)
                if self._apply_limits(endpoint, state, look.limits, look.by_hand):
                    self._check_registered(name)
                self._update_pause(endpoint, state, look.limits)
        self._last_snapshot = look

    def _disable_gone(self) -> None:
        while self._gone:
            name, why = next(iter(self._gone.items()))
            try:
                endpoint_cells.disable(self._store, name, self._catalog.is_configured(name), why)
                log.error("the HTTP task %s is disabled: %s", name, why)
            except ConfigError as error:  # somebody removed it meanwhile
                log.info("%s", error)
            # Only after the write: if the store fails, the next update tries again.
            del self._gone[name]

    def _report_interrupted(self) -> None:
        """Reports interrupted attempts whose job was cancelled. Most jobs were not: they are requeued."""
        while self._interrupted:
            job, sent = self._interrupted[0]
            there = self._store.get([job.id])[0]
            cancelled = (JobState.CANCELLED, job.epoch)
            if there is not None and (there.state, there.epoch) == cancelled and reported_sent(there) is None:
                self._store.apply([report_sent(there, sent)], self.now())
            # Only now: if the store fails, the next update tries again.
            self._interrupted.popleft()

    def _max_concurrency(self, endpoints: dict[str, Endpoint]) -> int:
        """How many requests one endpoint may have at once: half of the slots. If there are no other deliveries: all
        slots, and as many jobs in line."""
        # The other half is left, so that other endpoints always find some.
        others = sum(task.is_async and task.runner is None for task in list(self._catalog.tasks.values()))
        alone = others + sum(endpoint.enabled for endpoint in endpoints.values()) <= 1
        self.slots.alone = alone
        return max(1, 2 * self._slots if alone else self._slots // 2)

    def _advance_flow(self, endpoint: Endpoint, was: bytes | None, seen: Observed, most: int, now: int) -> FlowState:
        """Writes the state that follows from what was seen here, and returns the state that the store has then."""
        most = min(most, endpoint.concurrency or most)
        state = (
            FlowState(min(max(INITIAL, self._slots // 10), most)) if was is None else endpoint_cells.decode_flow(was)
        )
        new = flow.next_state(state, seen, most, now)
        if new == state:
            return state
        if not self._store.kv_cas(endpoint_cells.FLOW_CELL + endpoint.name, msgspec.json.encode(new), was):
            # Another worker wrote it at this moment. What was seen here is kept for the next update.
            _merge(self._observed.setdefault(endpoint.name, Observed()), seen)
            return state
        _log_circuit(endpoint, state, new)
        return new

    def _apply_limits(self, endpoint: Endpoint, state: FlowState, limits: dict[str, Limit], by_hand: Any) -> bool:
        """Sets the limits that follow from the state; returns whether any changed."""
        changed = False
        for name, limit in endpoint_cells.limits_of(endpoint, state).items():
            if limits.get(name) != limit and BY_HAND + name not in by_hand:
                self._store.limit(name, limit)
                changed = True
                if limit is not None:
                    # `_update_pause` looks up whether the store holds the jobs back.
                    limits[name] = limit
        return changed

    def _check_registered(self, name: str) -> None:
        """Clears the limits again if the task was removed meanwhile."""
        # The process that removed it could not clear limits that were set only afterwards.
        if not self._catalog.is_configured(name) and not endpoint_cells.is_registered(self._store, name):
            endpoint_cells.clear_removed(self._store, name)

    def _update_pause(self, endpoint: Endpoint, state: FlowState, limits: dict[str, Limit]) -> None:
        until = state.until if endpoint.enabled else math.inf
        stored = limits.get(TASK + endpoint.name, Limit()).most == 0
        if until:
            self._paused[endpoint.name] = (until, stored)
        elif endpoint.name not in self._gone:
            self._paused.pop(endpoint.name, None)


def _merge(into: Observed, seen: Observed) -> None:
    # `into` is newer: a success in it ends the row of `seen`.
    into.row = into.row if into.well else into.row + seen.row
    into.well += seen.well
    into.busy += seen.busy
    into.pause = max(into.pause, seen.pause)
    into.room = into.room or seen.room
    into.why = into.why or seen.why


def _log_circuit(endpoint: Endpoint, before: FlowState, now: FlowState) -> None:
    if now.opened > before.opened:
        log.warning(
            "%s: nothing is sent to %s for %d s: %s",
            endpoint.name,
            endpoint.url.origin,
            round((now.until - now.at) / SECOND),
            now.why,
        )
    elif before.opened and not now.opened:
        log.warning("%s: %s answers again", endpoint.name, endpoint.url.origin)


def _raise_file_limit() -> None:
    """Raises the limit of open files to the most that is allowed: each delivery needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as error:
            log.debug("open files stay at %d: %s", soft, error)
