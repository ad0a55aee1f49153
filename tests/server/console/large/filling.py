"""Fills a store with very many jobs in a minute or two, as a day of work would have left them."""

from collections.abc import Iterator, Sequence

import msgspec

from tarry.model import change as counted_as
from tarry.model.change import Change
from tarry.model.duration import DAY, HOUR, SECOND
from tarry.model.job import HELD, Job, State
from tarry.push.delivery.delivery_record import AttemptRecord, format_records, format_time
from tarry.store.rules.base import Store

QUEUES = ("mail", "images", "reports", "sync", "hooks")
TASKS = 50
"""Of each queue a fifth; those of the last queue are HTTP tasks."""
AT_ONCE = 2000
"""Jobs of one call of the store."""
NEEDLE = "needle@example.org"
"""Stands in the arguments of one dead job of the queue mail, put about half a day ago."""
RARE = "task-00"
"""A task of which some jobs are in a queue of the others."""
_ENDS = {
    State.DONE: counted_as.DONE,
    State.DEAD: counted_as.DEAD,
    State.CANCELLED: counted_as.CANCELLED,
}
_WAYS = (
    *(State.DONE,) * 9,
    *(State.READY,) * 5,
    *(State.SCHEDULED,) * 4,
    State.DEAD,
    State.CANCELLED,
)
"""What becomes of twenty jobs."""


def task_name(number: int) -> str:
    """The name of the task with that number."""
    return f"task-{number:02}"


def queue_of(number: int) -> str:
    """The queue of the task with that number."""
    return QUEUES[number * len(QUEUES) // TASKS]


def fill(store: Store, count: int, now: int) -> None:
    """Puts so many jobs of the last day, and ends half of them. now: by the store's clock, in microseconds."""
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count))
        jobs = [_job(number, count, now) for number in numbers]
        assert store.insert(jobs) == [job.id for job in jobs]
        assert all(store.apply(list(_ends(numbers, jobs, now)), now))
    while store.history.sum_up(now):
        pass


def _job(number: int, count: int, now: int) -> Job:
    put = now - DAY + number * DAY // count
    # Tasks and ways have no factor in common with each other, so that each task has all.
    task, way = number % TASKS, _WAYS[number // TASKS % len(_WAYS)]
    is_needle = number == count // 2 + 18 * TASKS
    name = NEEDLE if is_needle else f"person{number}@example.org"
    is_rare = not number % (count // 3)
    return Job(
        made_id(put, number),
        RARE if is_rare else task_name(task),
        msgspec.json.encode([name, {"subject": f"Your order {number} is on its way", "password": "hush"}]),
        QUEUES[-2] if is_rare else queue_of(task),
        priority=number % 3 - 1,
        due=now + HOUR + number if way is State.SCHEDULED else put,
        state=State.SCHEDULED if way is State.SCHEDULED else State.READY,
        state_since=put,
        key=f"order {number}" if not number % 10 else None,
        key_held_until=0 if number % 10 else HELD,
        progress=_output(number, put) if way is State.DEAD else b"",
    )


def made_id(at: int, number: int) -> bytes:
    """A UUIDv7 of that time: as its client would have made it."""
    return (at // 1000 << 80 | 0x7 << 76 | 0b10 << 62 | number).to_bytes(16, "big")


def _ends(numbers: Sequence[int], jobs: Sequence[Job], now: int) -> Iterator[Change]:
    for number, job in zip(numbers, jobs, strict=True):
        way = _WAYS[number // TASKS % len(_WAYS)]
        if way in _ENDS:
            at = min(now, job.state_since + SECOND * (number % 300))
            note = _NOTES[way] if job.queue != QUEUES[-1] else msgspec.json.encode(_delivery(3, at))
            yield Change(
                job.id, State.READY, 0, way, at, failures=int(way is State.DEAD), keep_until=now + DAY, note=note,
                key_held_until=0, counts=_ENDS[way], job=job,
            )  # fmt: skip


_NOTES = {
    State.DONE: b'"sent"',
    State.DEAD: b'{"type": "ValueError", "message": "no such address", "traceback": "app.py, line 17"}',
    State.CANCELLED: b'{"type": "Cancelled", "message": "not wanted", "traceback": ""}',
}


def _output(number: int, at: int) -> bytes:
    """What a dead job has printed; of an HTTP task, its attempts."""
    if queue_of(number % TASKS) != QUEUES[-1]:
        return msgspec.json.encode([None, "", 1, 0, f"sending {number}\n"])
    lines = format_records([_delivery(1, at), _delivery(2, at)], _delivery(3, at))
    return msgspec.json.encode([None, "", 3, 0, lines])


def _delivery(attempt: int, at: int) -> AttemptRecord:
    began = format_time(at / SECOND + attempt)
    return AttemptRecord(attempt, began, "final", "status 500", status=500, elapsed=0.1, answer="out of order")
