"""Order by a key, through retries: while a job waits for its next attempt, those behind it wait too.

The store's limit of the key runs one job at a time. That is not enough when the first job of a key is requeued for a
retry. Then a cell lists the ids of the waiting jobs in their order, and only the first of them may run. The worker
deletes the cell as soon as no job waits. Most keys never have one. A job that is cancelled or deleted while it waits,
and one whose worker dies at its end, stays listed until the next job of the key looks; where none comes, the keeper
deletes the cell.
"""

from collections.abc import Callable
from itertools import islice

from tarry.errors import StoreBusy
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.store.rules import owner
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import reachable_part
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.task_limits import MAX_KEY

CELL = "order:"
# The cell is read and written as a whole, so it must not grow without end.
MOST_LISTED = 1000
"""Ids listed for a key. Jobs behind them have no order among themselves until they are listed."""
_BEHIND = SECOND // 20  # Microseconds after the first job is due that the next jobs check whether it has ended.
_TRIES, _SIZE = 20, 16
SWEEP_EVERY = 300.0
"""Seconds."""
SWEPT_AT_ONCE = 1000
"""Cells that one sweep looks at."""


class KeyOrder:
    """Keeps the order of the jobs of each key."""

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        self._store, self._now = store, now

    async def check_turn(self, job: Job) -> int | None:
        """None if the job may run; else lists it, and returns the microseconds until it may ask again. StoreError."""
        # In a thread, as below: the store blocks, and the event loop has other deliveries.
        return await asyncio.to_thread(self._check_turn, job)

    async def keep_first(self, job: Job) -> None:
        """Lists the job as first of its key: it is requeued for a retry, and the others wait for it."""
        await asyncio.to_thread(self._keep_first, job)

    async def remove(self, job: Job) -> None:
        """Removes a job that has ended."""
        await asyncio.to_thread(self._remove, job)

    def _check_turn(self, job: Job) -> int | None:
        for _ in range(_TRIES):
            listed, was = self._read(job)
            first = self._first(listed)
            if first is None or first.id == job.id:
                # Most checks find no ended job before this one: then there is nothing to write.
                if len(listed) == len(_ids(was)) or self._write(job, listed, was):
                    return None
                continue
            if job.id not in listed and len(listed) < MOST_LISTED:
                listed.append(job.id)
            if listed == _ids(was) or self._write(job, listed, was):
                # Before the first job is due, nothing can change.
                return max(first.due - self._now(), 0) + _BEHIND
        raise StoreBusy(f"the order of {job.task} changes all the time")

    def _first(self, listed: list[bytes]) -> Job | None:
        """The first listed job that is not finished. Removes those before it from the list."""
        while listed:
            (job,) = self._store.get(listed[:1])
            if job is not None and not job.state.finished:
                return job
            del listed[0]
        return None

    def _keep_first(self, job: Job) -> None:
        self._change(job, lambda listed: listed if job.id in listed else [job.id, *listed])

    def _remove(self, job: Job) -> None:
        self._change(job, lambda listed: [id for id in listed if id != job.id])

    def _change(self, job: Job, how: Callable[[list[bytes]], list[bytes]]) -> None:
        for _ in range(_TRIES):
            listed, was = self._read(job)
            if (new := how(listed)) == listed or self._write(job, new, was):
                return
        raise StoreBusy(f"the order of {job.task} changes all the time")

    def _read(self, job: Job) -> tuple[list[bytes], bytes | None]:
        was = self._store.kv_get(_cell(job))
        return _ids(was), was

    def _write(self, job: Job, listed: list[bytes], was: bytes | None) -> bool:
        return self._store.kv_cas(_cell(job), b"".join(listed) or None, was)


class OrderSweep:
    """Deletes the cells of keys whose listed jobs have all ended. One keeper does it for all hosts."""

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        self._store, self._now, self._name = store, now, owner.new_name()
        self._after = ""
        """The name of the last cell that was looked at; empty: begin with the first."""

    def sweep_orders(self) -> None:
        """Looks at the next cells, SWEPT_AT_ONCE at most. StoreError."""
        now = self._now()
        if not self._store.hold("orders", self._name, now + int(2 * SWEEP_EVERY) * SECOND, now):
            return
        cells = reachable_part(lambda: self._store.kv_list(CELL))
        names = list(islice((name for name in sorted(cells) if name > self._after), SWEPT_AT_ONCE))
        self._after = names[-1] if len(names) == SWEPT_AT_ONCE else ""
        firsts = [cells[name][:_SIZE] for name in names]
        for name, is_over in zip(names, self._are_over(firsts), strict=True):
            # A job behind one that has ended finds that out by itself, unless it has ended, too.
            if is_over and all(self._are_over(_ids(cells[name]))):
                self._store.kv_cas(name, None, cells[name])

    def _are_over(self, ids: list[bytes]) -> list[bool]:
        """For each id whether there is no such job that is unfinished."""
        return [job is None or job.state.finished for job in self._store.get(ids)]


def _cell(job: Job) -> str:
    return f"{CELL}{job.task}:{(job.lane or '')[:MAX_KEY]}"


def _ids(cell: bytes | None) -> list[bytes]:
    return [cell[at : at + _SIZE] for at in range(0, len(cell), _SIZE)] if cell else []
