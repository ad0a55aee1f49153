"""What a scrape shows of the store. It is read at most every few seconds, and never waited for longer than that."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from msgspec import Struct

from tarry.app import App
from tarry.errors import StoreError
from tarry.keeper import schedule_state
from tarry.keeper.cron import schedules_of
from tarry.keeper.keeper_records import ScheduleRecord, schedule_records
from tarry.metrics.store_overview import CachedOverview, CachedRead, StoreOverview, read_totals
from tarry.model.duration import SECOND
from tarry.model.schedules.schedule import LEFT_OUT, REFUSED
from tarry.store.queries.missed_schedules import read_missed, read_sums
from tarry.store.queries.stored_schedules import PREFIX, due_entries
from tarry.store.rules.base import Store
from tarry.store.rules.history.sums import ERRORS, Place
from tarry.store.rules.partial_result import reachable_part
from tarry.store.shards.shard import public_url
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shared.backoff import OutageLog

log = logging.getLogger("tarry.metrics")

READ_WITHIN = 5.0
"""Seconds that a scrape waits for the store. Prometheus gives up after 10 s unless it is told otherwise."""


class Circuit(Struct, frozen=True):
    """The endpoint of an HTTP task."""

    queue: str
    is_open: bool


class StoredFigures(Struct, frozen=True):
    """All schedules that the store keeps. Times are seconds since the epoch; 0: none."""

    number: int = 0
    missed_now: int = 0
    missed_ticks: int = 0
    last: float = 0.0
    next: float = 0.0


class StoreFigures(Struct, frozen=True):
    """What was read of a store that answers."""

    look: StoreOverview
    totals: Mapping[Place, bytes]
    """What was ever counted, by queue and task; empty while a part of the store is away."""
    schedules: Mapping[str, ScheduleRecord]
    missed: Mapping[str, int]
    """By schedule: ticks that became no job, among those that the store remembers."""
    stored: StoredFigures
    """Of the schedules that the store keeps."""
    circuits: Mapping[str, Circuit]
    """By HTTP task."""
    errors: Mapping[Place, bytes]
    """Groups of errors (`decode_group`); empty while a part of the store is away."""


class StoreReading(Struct, frozen=True):
    """What a scrape knows of the store."""

    pings: Mapping[str, float | None]
    """Seconds of the smallest read, by the URL of the store; None: it does not answer."""
    figures: StoreFigures | None
    """None: they could not be read."""


class FiguresReader:
    """Reads what scrapes show. store: may block, and raise StoreError. look, totals: those of a server, which shows
    the same elsewhere."""

    def __init__(
        self,
        app: App,
        store: Callable[[], Store],
        look: Callable[[], StoreOverview] | None = None,
        totals: Callable[[], Mapping[Place, bytes]] | None = None,
    ) -> None:
        self._app, self._store = app, store
        self._look = look or CachedOverview(store).read
        self._totals = totals or CachedRead(lambda: read_totals(store())).read
        self._facts = CachedRead(lambda: _read_facts(store(), app))
        self._pings = CachedRead(self._ping)
        self._outage = OutageLog(log, "/metrics has the figures of the store again")
        self._lock = threading.Lock()
        self._reading: Future[StoreReading] | None = None
        self._answered: Mapping[str, float | None] | None = None
        """The pings of the read that runs; None: it has none yet."""

    def read(self, within: float = READ_WITHIN) -> StoreReading:
        """What the store shows; of a store that takes longer than so many seconds only whether it answered at all."""
        # One read at a time: a store that hangs must not take a thread for each scrape.
        with self._lock:
            reading = self._reading
            if reading is None or reading.done():
                reading, self._answered = Future(), None
                self._reading = reading
                threading.Thread(target=self._run, args=(reading,), name="tarry-metrics-read", daemon=True).start()
        try:
            return reading.result(within)
        except TimeoutError:
            # Only what this read has heard: a store that hangs did answer the one before.
            return StoreReading(self._answered or self._no_answers(), None)

    def _run(self, reading: "Future[StoreReading]") -> None:
        try:
            reading.set_result(self._read())
        except BaseException as error:
            log.exception("the store cannot be read for /metrics")
            reading.set_exception(error)

    def _read(self) -> StoreReading:
        pings = self._answered = self._pings.read()
        if not any(seconds is not None for seconds in pings.values()):
            return StoreReading(pings, None)
        try:
            facts = self._facts.read()
            figures = StoreFigures(self._look(), self._totals(), *facts)
        except StoreError as error:
            if self._outage.fail(time.monotonic()):
                log.warning("/metrics is without the figures of the store: %s", error)
            # A store whose jobs cannot be counted is of no use, though it answers.
            return StoreReading(dict.fromkeys(pings), None)
        self._outage.end()
        return StoreReading(pings, figures)

    def _ping(self) -> dict[str, float | None]:
        """Never raises a StoreError: that a store does not answer is what is asked."""
        try:
            store = self._store()
        except (StoreError, OSError) as error:
            log.debug("the store cannot be opened: %s", error)
            return self._no_answers()
        if isinstance(store, ShardedStore):
            return {shard.url: _seconds(lambda: shard.ask(_ping)) for shard in store.shards if not shard.is_removed}  # noqa: B023 - called here
        return {public_url(store.url): _seconds(lambda: _ping(store))}

    def _no_answers(self) -> dict[str, float | None]:
        urls = self._app.store_url
        return dict.fromkeys(map(public_url, [urls] if isinstance(urls, str) else urls))


def _seconds(ping: Callable[[], float]) -> float | None:
    try:
        return ping()
    except (StoreError, OSError):
        return None


def _ping(store: Store) -> float:
    began = time.perf_counter()
    store.kv_get("health")
    return time.perf_counter() - began


_Facts = tuple[dict[str, ScheduleRecord], dict[str, int], StoredFigures, dict[str, Circuit], Mapping[Place, bytes]]


def _read_facts(store: Store, app: App) -> _Facts:
    """The schedules, their missed ticks, those in the store, the circuits, the errors; StoreError."""
    schedules, errors = schedules_of(app.tasks, app.config.named_calendars), read_totals(store, ERRORS)
    stored = _read_stored(store)
    if not schedules:
        return {}, {}, stored, _circuits(store, app), errors
    records = {record.name: record for record in schedule_records(store, schedules, store.time())}
    states = schedule_state.read(store)
    missed = {name: _count_missed(states[name][0]) if name in states else 0 for name in schedules}
    return records, missed, stored, _circuits(store, app), errors


def _read_stored(store: Store) -> StoredFigures:
    number, sums = reachable_part(lambda: store.kv_count(PREFIX)), read_sums(store)
    if not number:
        return StoredFigures(0, 0, sums.missed, sums.last / SECOND)
    first = reachable_part(lambda: due_entries(store, None, 1))
    upcoming = first[0].at / SECOND if first else 0.0
    return StoredFigures(number, len(read_missed(store)), sums.missed, sums.last / SECOND, upcoming)


def _count_missed(state: schedule_state.ScheduleState) -> int:
    return sum(run.ticks for run in state.runs if run.end in (LEFT_OUT, REFUSED))


def _circuits(store: Store, app: App) -> dict[str, Circuit]:
    endpoints: Mapping[str, Any] = app.http.endpoints
    if not endpoints:
        return {}
    from tarry.push.endpoint.endpoint_cells import read_flows  # noqa: PLC0415
    from tarry.push.health import CLOSED, circuit  # noqa: PLC0415 - most apps have no HTTP tasks

    flows = read_flows(store)
    return {
        name: Circuit(endpoint.queue, circuit(flows[name][0] if name in flows else None) != CLOSED)
        for name, endpoint in endpoints.items()
    }
