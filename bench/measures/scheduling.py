"""Schedules that the store keeps: what 100,000 of them cost while nothing is due, and what a tick costs."""

import time
from collections.abc import Iterator

from bench import machine
from bench.app import app, noop
from bench.measure import Figure, measure
from bench.place import Bench
from tarry.client.client import Client
from tarry.keeper.stored_ticks import StoredTicker
from tarry.model.duration import HOUR
from tarry.model.schedules import stored as rules
from tarry.model.schedules.definition import ScheduleDefinition
from tarry.store.queries.stored_schedules import PREFIX, encode, entry_of
from tarry.store.rules.base import ValueChange

MANY, DUE, AT_ONCE = 100_000, 100, 10_000
_PUTS, _LOOKS = 500, 500
_BODY = b'[1,""]'
_WRITTEN_AT_ONCE = 1000


@measure("schedules", limit=600)
def schedules(bench: Bench) -> Iterator[Figure]:
    count, seconds = bench.scaled(MANY), bench.scaled(20)
    with bench.place() as place:
        client = app.client
        nightly = ScheduleDefinition(noop.name, _BODY, "0 3 1 1 *")
        ticker = StoredTicker(client, app.tasks.get)
        yield Figure("put of a schedule", _put_some(), "a second")
        yield Figure("a look, no schedules", _look(ticker), "µs")
        with place.workers(1) as crew:
            yield Figure("idle, no schedules: CPU of all processes", _cpu(crew.everybody, seconds), "% of a core")
        _fill(client, "many", nightly, count, client.clock.now())
        yield Figure(f"a look, {count:,} schedules", _look(ticker), "µs", "a look, no schedules")
        with place.workers(1) as crew:
            name = f"idle, {count:,} schedules: CPU of all processes"
            yield Figure(name, _cpu(crew.everybody, seconds), "% of a core", "idle, no schedules: CPU of all processes")
        for due in (DUE, bench.scaled(AT_ONCE)):
            every = ScheduleDefinition(noop.name, _BODY, "@every 1h")
            _fill(client, f"due{due}", every, due, client.clock.now() - HOUR)
            begin = time.perf_counter()
            while ticker.tick() < 1:
                pass
            passed = time.perf_counter() - begin
            yield Figure(f"a tick of {due:,} that are due, beside {count:,}", passed * 1000, "ms")


def _put_some() -> float:
    """A second."""
    call = noop.call(1, "")
    begin = time.perf_counter()
    for number in range(_PUTS):
        app.schedules.put(f"put:{number}", call, cron="0 3 1 1 *")
    passed = time.perf_counter() - begin
    for number in range(_PUTS):
        app.schedules.delete(f"put:{number}")
    return _PUTS / passed


def _look(ticker: StoredTicker) -> float:
    """Microseconds."""
    begin = time.perf_counter()
    for _ in range(_LOOKS):
        ticker.tick()
    return (time.perf_counter() - begin) / _LOOKS * 1e6


def _cpu(pids: list[int], seconds: float) -> float:
    """Percent of a core."""
    time.sleep(2)  # idle is a while after the start
    before, begin = sum(map(machine.cpu, pids)), time.monotonic()
    time.sleep(seconds)
    return (sum(map(machine.cpu, pids)) - before) / (time.monotonic() - begin) * 100


def _fill(client: Client, prefix: str, definition: ScheduleDefinition, count: int, now: int) -> None:
    """As if each had been put then."""
    for start in range(0, count, _WRITTEN_AT_ONCE):
        changes: list[ValueChange] = []
        for number in range(start, min(count, start + _WRITTEN_AT_ONCE)):
            name = f"{prefix}:{number}"
            one = rules.put(name, None, definition, now, "bench")
            value = encode(client.store, name, one)
            entry = entry_of(name, one, value)
            assert entry is not None
            changes += [(entry.cell, b"", None), (PREFIX + name, value, None)]
        client.store.kv_write(changes)
