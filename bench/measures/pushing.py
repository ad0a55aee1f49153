"""Jobs that are sent to a URL: how many a second, how soon after they were due, and how they fare beside endpoints that
take long. Rates and moments are those of the arrival at the endpoint, a process of its own on the same machine.
"""

import asyncio
import random
import time
from collections.abc import Iterator
from itertools import count, islice

import msgspec

from bench import machine
from bench.board import BOARD
from bench.endpoint import SLOW, Endpoint, endpoint
from bench.measure import NONE, Figure, Target, at_least, below, goal, measure, percentile
from bench.measures.draining import end_rate, most_memory, wait_for
from bench.place import Bench
from bench.waiting import until
from tarry import App
from tarry.push.http.address_guard import AddressGuard
from tarry.push.http.http_sender import HttpRequest, Sender, SendLimits
from tarry.push.http.response import HttpResponse

_JOBS, _BYTES = 30_000, 64
_AT_ONCE = 50
_DUE, _SPAN = 5000, 10.0
_HELD, _SLOW_TASKS = 1000, 5
_QUICK_EVERY, _QUICK_FOR = 0.02, 15.0
_ALLOW = """
[push]
allow = ["127.0.0.1"]
"""
_TASK = """
[tasks.{name}]
url = "{url}"
secret = "whsec_c2VjcmV0IG9mIHRoZSBiZW5jaG1hcmsu"
"""


@measure("push", limit=120)
def one(bench: Bench) -> Iterator[Figure]:
    yield from _delivered(bench, 1, None)


@measure("push-2", limit=120)
def two(bench: Bench) -> Iterator[Figure]:
    yield from _delivered(bench, 2, goal(bench, sqlite=at_least(3000), redis=at_least(3000)))


def _delivered(bench: Bench, workers: int, target: Target | None) -> Iterator[Figure]:
    """From the first arrival to the last, the pace's beginning with 20 at once included."""
    name = f"push, {_BYTES} bytes, {workers} worker{'s' if workers > 1 else ''}"
    numbers = range(bench.scaled(_JOBS))
    with endpoint() as there, bench.place(_ALLOW + _tables(hook=there.url)) as place, place.connected() as app:
        place.hold_back()
        ids = _put(app, numbers)
        with place.workers(workers) as crew:
            used, theirs = _cpu(crew.pids), machine.cpu(there.pid)
            place.let_go()
            done = wait_for(numbers, len(numbers), 60)
            used, theirs = _cpu(crew.pids) - used, machine.cpu(there.pid) - theirs
        yield Figure(name, end_rate(numbers), "/s", target=target)
        yield Figure(f"{name}: CPU a delivery, of the workers", used / max(done, 1) * 1e6, "µs")
        yield Figure(f"{name}: CPU a delivery, of the endpoint", theirs / max(done, 1) * 1e6, "µs")
        yield from _missed(name, there, ids)


@measure("push-sender", limit=90)
def alone(bench: Bench) -> Iterator[Figure]:
    """The sender with no worker around it. CPU of all its threads."""
    name, numbers = f"sender alone, {_AT_ONCE} at once", iter(range(bench.scaled(_JOBS)))
    with endpoint() as there:
        seconds, used = asyncio.run(_send_all(there.url, numbers))
    yield Figure(f"{name}: CPU a request", used / bench.scaled(_JOBS) * 1e6, "µs")
    yield Figure(name, bench.scaled(_JOBS) / seconds, "/s")


async def _send_all(url: str, numbers: Iterator[int]) -> tuple[float, float]:
    """Seconds, and seconds of CPU, of all after the first ones, which connect."""
    sender = Sender(AddressGuard(["127.0.0.1"]))

    async def send(numbers: Iterator[int]) -> None:
        for number in numbers:
            headers = (("content-type", "application/json"), ("webhook-id", str(number)))
            request = HttpRequest("POST", url, headers, msgspec.json.encode(_body(number)))
            if not isinstance(got := await sender.send(request, SendLimits()), HttpResponse):
                raise RuntimeError(got.reason)

    async def send_together(numbers: Iterator[int]) -> None:
        await asyncio.gather(*[send(numbers) for _ in range(_AT_ONCE)])

    await send_together(iter(range(10 * _AT_ONCE)))
    began, used = time.monotonic(), time.process_time()
    await send_together(numbers)
    began, used = time.monotonic() - began, time.process_time() - used
    await sender.close()
    return began, used


@measure("push-lateness", limit=90)
def late(bench: Bench) -> Iterator[Figure]:
    """Arrival minus due, both by the wall clock of this machine."""
    name = "lateness of deliveries"
    numbers, chance = range(bench.scaled(_DUE)), random.Random(7)
    with endpoint() as there, bench.place(_ALLOW + _tables(hook=there.url)) as place, place.connected() as app:
        with place.workers(1):
            # So long that all are put before the first is due, also by a slow disk.
            begin = time.time() + 2 + len(numbers) / 200
            ids = [_put_at(app, number, begin + chance.random() * _SPAN) for number in numbers]
            if time.time() >= begin:
                raise RuntimeError("the enqueues took too long: some jobs were due before they were put")
            done = wait_for(numbers, len(numbers), begin - time.time() + _SPAN + 10)
        # To the microsecond, in which due times are kept.
        waited = [round((BOARD.start[i] - BOARD.put[i]) * 1e6) / 1e3 for i in numbers if BOARD.done[i]]
        targets = {0.0: at_least(0), 0.5: None, 0.99: below(50), 1.0: None}
        for part, target in targets.items():
            yield Figure(f"{name}: {_spoken(part)}", percentile(waited, part), "ms", target=target)
        yield Figure(f"{name}: not made", len(numbers) - done, "jobs", target=NONE)
        yield from _missed(name, there, ids)


@measure("push-in-flight", limit=150)
def held(bench: Bench) -> Iterator[Figure]:
    """One worker, of whose slots half are taken by five endpoints that take five seconds; and one that does not. The
    jobs come at the rate at which they end."""
    name = f"{_HELD:,} deliveries in flight for {SLOW:g} s"
    slow = [f"slow{number}" for number in range(_SLOW_TASKS)]
    with endpoint() as there:
        tables = (
            _ALLOW + _tables(hook=there.url) + _tables(_HELD // _SLOW_TASKS, **dict.fromkeys(slow, f"{there.url}slow"))
        )
        with bench.place(tables) as place, place.connected() as app, place.workers(1, 2 * _HELD) as crew:
            quick = bench.scaled(round(_QUICK_FOR / _QUICK_EVERY))
            ids, alone = _paced(app, range(quick))
            numbers = count(2 * quick)
            for task in slow:
                ids += _put_spread(app, numbers, task)
            until(lambda: there.counts().most >= _HELD, 20, 0.1)
            others, beside = _paced(app, range(quick, 2 * quick))
            memory = most_memory(crew.pids)
            until(lambda: len(there.counts().times) >= len(ids) + len(others), 60, 0.1)
        yield Figure(f"{name}: at once", there.counts().most, "", target=at_least(_HELD))
        yield Figure(f"{name}: RSS of the worker", memory, "MB", target=below(200))
        for part in (0.5, 0.99):
            yield Figure(f"{name}: others' pick-up {_spoken(part)}, without them", percentile(alone, part), "ms")
            yield Figure(f"{name}: others' pick-up {_spoken(part)}", percentile(beside, part), "ms")
        yield from _missed(name, there, ids + others)


def _tables(concurrency: int = 0, **urls: str) -> str:
    """HTTP tasks by name; concurrency: at once, for each of them; 0: as many as come."""
    bound = f"concurrency = {concurrency}\n" if concurrency else ""
    return "".join(_TASK.format(name=name, url=url) + bound for name, url in urls.items())


def _body(number: int) -> dict[str, int | str]:
    """64 bytes of JSON, the number first."""
    return {"n": number, "text": "x" * (_BYTES - len('{"n":,"text":""}') - len(str(number)))}


def _put(app: App, numbers: range, task: str = "hook") -> list[str]:
    """Their ids."""
    found = app.named(task)
    whole = [[_body(number) for number in numbers[start : start + 1000]] for start in range(0, len(numbers), 1000)]
    return [handle.id for bodies in whole for handle in found.enqueue_many([(body,) for body in bodies])]


def _put_spread(app: App, numbers: Iterator[int], task: str) -> list[str]:
    """A tenth more than the endpoint can take, for as long as is measured, as they would come by themselves: if all of
    them ended at one moment, that moment would be measured."""
    found, begin = app.named(task), time.time()
    each, times = round(1.1 * _HELD / _SLOW_TASKS / SLOW / 4), round(4 * (_QUICK_FOR + 2 * SLOW))
    some = [found.using(at=begin + turn / 4) for turn in range(times)]
    return [handle.id for one in some for handle in one.enqueue_many([(_body(n),) for n in islice(numbers, each)])]


def _put_at(app: App, number: int, due: float) -> str:
    BOARD.put[number] = due = round(due, 6)
    found = app.named("hook")
    return found.using(at=due).enqueue(_body(number)).id


def _paced(app: App, numbers: range) -> tuple[list[str], list[float]]:
    """One after another at a fixed rate: their ids, and milliseconds from before the enqueue to the arrival."""
    ids, begin = [], time.monotonic()
    for passed, number in enumerate(numbers):
        time.sleep(max(0.0, begin + passed * _QUICK_EVERY - time.monotonic()))
        BOARD.put[number] = time.time()
        ids.append(app.enqueue("hook", _body(number)).id)
    wait_for(numbers, len(numbers), 10)
    return ids, [(BOARD.start[i] - BOARD.put[i]) * 1e3 for i in numbers if BOARD.done[i]]


def _cpu(pids: list[int]) -> float:
    return sum(map(machine.cpu, pids))


def _spoken(part: float) -> str:
    return {0.0: "min", 1.0: "max"}.get(part, f"p{part * 100:g}")


def _missed(name: str, there: Endpoint, ids: list[str]) -> Iterator[Figure]:
    """By what arrived as `webhook-id`."""
    times = there.counts().times
    yield Figure(f"{name}: lost", sum(id not in times for id in ids), "jobs", target=NONE)
    yield Figure(f"{name}: delivered twice", sum(often > 1 for often in times.values()), "jobs", target=NONE)
