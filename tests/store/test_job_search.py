"""Finding jobs by text and by the time of their put: bounded, page by page."""

import itertools

import pytest

from tarry.model.duration import HOUR, SECOND
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.job_search import (
    LONGEST,
    MOST_EXAMINED,
    PAGE,
    JobSearch,
    SearchResult,
    has_text,
    id_of_moment,
    parse_moment,
    search_jobs,
)
from tarry.store.rules.base import Query
from tarry.store.rules.ids import uuid7
from tests.store.switched import memories

NOW = 1_700_000_000 * SECOND


def at(moment: int, number: int = 0) -> bytes:
    """An id that was made then."""
    return (moment // 1000 << 80 | 7 << 76 | 2 << 62 | number).to_bytes(16, "big")


def put(store: MemoryStore, bodies: list[str]) -> list[bytes]:
    return store.insert([Job(uuid7(), "t", body.encode()) for body in bodies])


def test_text_is_found_in_small_and_capital_letters() -> None:
    job = Job(uuid7(), "t", b'{"to": "Ann@example.org", "name": "J\\u00fcrgen"}')
    assert has_text(job, "ANN@")
    assert has_text(job, "j\u00fcrgen")
    assert has_text(Job(uuid7(), "t", "J\u00fcrgen".encode()), "j\u00fcrg")
    assert not has_text(job, "bob")
    assert has_text(job, "")


def test_pages_go_on_where_they_ended() -> None:
    store = MemoryStore()
    ids = put(store, [f"{n % 3}" for n in range(3 * PAGE)])
    seen: list[bytes] = []
    query = Query(limit=400)
    for _ in range(4):
        found = search_jobs(store, JobSearch(query, "1"))
        seen += [job.id for job in found.jobs]
        if found.next is None:
            break
        query = Query(limit=400, after=found.next)
    assert seen == ids[1::3]
    assert found.next is None


def test_a_search_without_text_reads_no_more_than_its_page() -> None:
    store = MemoryStore()
    ids = put(store, ["x"] * 20)
    found = search_jobs(store, JobSearch(Query(limit=7)))
    assert ([job.id for job in found.jobs], found.next, found.examined) == (ids[:7], ids[6], 7)
    assert search_jobs(store, JobSearch(Query(limit=20, after=ids[0]))) == SearchResult(
        [job for job in store.get(ids[1:]) if job], None, 19
    )


def test_what_is_looked_at_is_bounded_in_number_and_in_time() -> None:
    store = MemoryStore()
    ids = put(store, ["x"] * (MOST_EXAMINED + PAGE))
    found = search_jobs(store, JobSearch(Query(limit=5), "y"), clock=lambda: 0.0)
    assert (list(found.jobs), found.examined, found.next) == ([], MOST_EXAMINED, ids[MOST_EXAMINED - 1])
    ticks = itertools.chain([0.0, LONGEST], itertools.repeat(2 * LONGEST))
    found = search_jobs(store, JobSearch(Query(limit=5), "y"), clock=lambda: next(ticks))
    assert (found.examined, found.next) == (2 * PAGE, ids[2 * PAGE - 1])


def test_jobs_of_a_span_of_time() -> None:
    store = MemoryStore()
    ids = [at(NOW + n * HOUR) for n in range(6)]
    store.insert([Job(id, "t", b"") for id in ids])
    query = Query(after=id_of_moment(NOW + HOUR), limit=100)
    found = search_jobs(store, JobSearch(query, until=id_of_moment(NOW + 3 * HOUR)))
    assert ([job.id for job in found.jobs], found.next) == (ids[1:3], None)


def test_ids_compare_with_a_moment_as_their_times_do() -> None:
    assert at(NOW - 1000) < id_of_moment(NOW) < at(NOW)
    assert id_of_moment(-1) == bytes(16)
    assert len(id_of_moment(2**62)) == 16


def test_times_as_people_write_them() -> None:
    assert parse_moment("2h", NOW) == NOW - 2 * HOUR
    assert parse_moment(90, NOW) == NOW - 90 * SECOND
    assert parse_moment("2023-11-14T22:13:20Z", 0) == NOW
    assert parse_moment("2023-11-14T22:13:20", 0) == NOW
    assert parse_moment("2023-11-14T23:13:20+01:00", 0) == NOW
    for wrong in ("soon", "-2h", "2023-13-14"):
        with pytest.raises(ValueError, match="no time"):
            parse_moment(wrong, NOW)
    with pytest.raises(ValueError, match="negative"):
        parse_moment(-1, NOW)


def test_a_store_that_is_away_is_told_of() -> None:
    store, (_, second) = memories("ab")
    store.insert([Job(store.new_id("t"), "t", b"x") for _ in range(20)])
    second.down()
    found = search_jobs(store, JobSearch(Query(limit=100), "x"))
    assert found.away is not None
    assert 0 < len(found.jobs) < 20
    store.close()


class Counting(MemoryStore):
    """Notes how many jobs each search for some of them looks at."""

    def __init__(self) -> None:
        super().__init__()
        self.looked: list[int] = []

    def find(self, query: Query) -> list[Job]:
        if query.task:
            self.looked.append(len(super().find(Query(after=query.after, until=query.until, limit=10**6))))
        return super().find(query)


def test_a_store_is_never_asked_to_look_through_all_jobs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.store.queries.job_search.STRETCH", 100)
    store = Counting()
    ids = put(store, ["x"] * 1050)
    last = store.insert([Job(uuid7(), "rare", b"x")])
    rare = JobSearch(Query(task="rare", limit=5))
    found = search_jobs(store, rare, clock=lambda: 0.0)
    assert ([job.id for job in found.jobs], found.next) == (last, None)
    assert max(store.looked) <= 100
    # Nor for long.
    ticks = itertools.chain([0.0, LONGEST], itertools.repeat(2 * LONGEST))
    found = search_jobs(store, rare, clock=lambda: next(ticks))
    assert (list(found.jobs), found.next) == ([], ids[199])
    # Nor further than asked.
    store.looked.clear()
    found = search_jobs(store, JobSearch(rare.query, until=ids[149]), clock=lambda: 0.0)
    assert (list(found.jobs), found.next, store.looked) == ([], None, [100, 50])


def test_no_job_is_passed_over_where_pages_and_stretches_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.store.queries.job_search.STRETCH", PAGE + 200)
    store = MemoryStore()
    ids = put(store, [f"{n % 3}" for n in range(3 * PAGE)])
    found = search_jobs(store, JobSearch(Query(task="t", limit=3 * PAGE), "1"), clock=lambda: 0.0)
    assert ([job.id for job in found.jobs], found.next) == (ids[1::3], None)
