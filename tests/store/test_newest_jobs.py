"""The newest jobs first: bounded, page by page, on any store."""

import itertools

import pytest

from tarry.model.job import Job, State
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.job_search import PAGE, JobSearch, id_range
from tarry.store.queries.newest_jobs import newest_jobs
from tarry.store.rules.base import Query
from tarry.store.rules.ids import uuid7

DAY = 86_400_000


def made(milliseconds: int, number: int = 0) -> bytes:
    return (milliseconds << 80 | 7 << 76 | 2 << 62 | number).to_bytes(16, "big")


def fill(store: MemoryStore, count: int, step: int) -> list[bytes]:
    """So many jobs, at these intervals of milliseconds; every third is of another queue. Returns their ids."""
    start = int.from_bytes(uuid7()[:6], "big") - count * step
    queues = ("shop", "shop", "mail")
    jobs = [Job(made(start + n * step, n), "t", f"[{n}]".encode(), queues[n % 3]) for n in range(count)]
    return store.insert(jobs)


def pages(store: MemoryStore, search: JobSearch) -> list[bytes]:
    seen, before = list[bytes](), b""
    for _ in range(1000):
        found = newest_jobs(store, search, before)
        assert len(found.jobs) <= search.query.limit
        seen += [job.id for job in found.jobs]
        if found.next is None:
            return seen
        before = found.next
    raise AssertionError("it does not end")


@pytest.mark.parametrize("step", [0, 1, 1000, DAY])
def test_pages_have_each_job_once_the_newest_first(step: int) -> None:
    store = MemoryStore()
    ids = fill(store, 700, step)
    assert pages(store, JobSearch(Query(limit=90))) == ids[::-1]
    assert pages(store, JobSearch(Query(queue="mail", limit=90))) == ids[2::3][::-1]
    assert pages(store, JobSearch(Query(limit=90, queues=("m*",)))) == ids[2::3][::-1]
    assert pages(store, JobSearch(Query(limit=90, after=ids[99]), until=ids[199])) == ids[100:200][::-1]
    assert pages(store, JobSearch(Query(limit=7), "9]")) == ids[9::10][::-1]
    assert pages(store, JobSearch(Query(limit=7), end=ids[300].hex()[-8:])) == [ids[300]]
    assert pages(store, JobSearch(Query((State.DEAD,), limit=90))) == []


def test_a_search_that_takes_too_long_goes_on_later_and_tells_nobody_of_jobs_of_others() -> None:
    store = MemoryStore()
    ids = fill(store, 3 * PAGE, DAY)
    ticks = itertools.count(0.0, 9.0)
    for queues in ((), ("mail",)):
        search = JobSearch(Query(task="none", limit=5, queues=queues))
        found = newest_jobs(store, search, clock=lambda: next(ticks))
        assert (found.jobs, found.next is None) == ([], False)
        assert queues == () or (found.next and not any(found.next[6:]))
        assert pages(store, JobSearch(Query(queue="mail", limit=500, queues=queues))) == ids[2::3][::-1]


def test_a_search_of_what_no_store_knows_looks_at_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    fill(store, 2 * PAGE, DAY)
    search = JobSearch(Query(limit=5), end="f" * 8)
    found = newest_jobs(store, search, clock=lambda: 0.0)
    assert (found.jobs, found.next, found.examined) == ([], None, 2 * PAGE)
    monkeypatch.setattr("tarry.store.queries.newest_jobs.MOST_EXAMINED", 10)
    found = newest_jobs(store, search, clock=lambda: 0.0)
    assert (found.jobs, found.next is None, found.examined < 2 * PAGE) == ([], False, True)


def test_a_range_has_the_ids_that_begin_so() -> None:
    id = made(DAY, 5)
    for length in (0, 1, 6, 11, 31, 32):
        low, high = id_range(id.hex()[:length])
        assert low < id <= high
        assert length < 11 or not low < made(9 * DAY) <= high
    assert id_range(id.hex()) == (made(DAY, 4), id)
