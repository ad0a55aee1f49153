from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.model.flow.own_queues import own_queue
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Want
from tarry.store.rules.ids import uuid7
from tarry.worker import claim_plan, external_queues
from tarry.worker.claim_plan import ClaimPlan, WeightedQueues
from tarry.worker.external_queues import MARKED_FOR, find_external, mark_external
from tarry.worker.worker import Worker, WorkerSettings


def planned(shares: WeightedQueues, limits: Sequence[int]) -> Counter[tuple[str, int]]:
    total: Counter[tuple[str, int]] = Counter()
    for limit in limits:
        total.update({(want.queue, want.band): want.count for want in shares.plan(limit)})
    return total


def test_bands_share_in_one_large_claim_and_in_many_small_ones() -> None:
    for limits in ([1000], [1] * 1000, [7] * 100 + [300]):
        shares = WeightedQueues()
        shares.set_queues({"default": 1})
        assert planned(shares, limits) == {("default", 1): 500, ("default", 0): 300, ("default", -1): 200}


def test_weights_multiply_bands() -> None:
    shares = WeightedQueues((1, 1, 1))
    shares.set_queues({"critical": 5, "default": 3, "bulk": 2})
    total = planned(shares, [1] * 3000)
    assert [total[queue, band] for queue in ("critical", "default", "bulk") for band in (1, 0, -1)] == [
        500, 500, 500, 300, 300, 300, 200, 200, 200,
    ]  # fmt: skip


def test_strict_asks_the_high_band_of_every_queue_first() -> None:
    shares = WeightedQueues("strict")
    shares.set_queues({"a": 1, "b": 1})
    assert shares.plan(5) == [Want(queue, band, 5) for band in (1, 0, -1) for queue in ("a", "b")]


def test_every_line_is_in_every_plan() -> None:
    """What the lines that come first cannot fill, the others may."""
    shares = WeightedQueues()
    shares.set_queues({"a": 1, "b": 1})
    assert {(want.queue, want.band) for want in shares.plan(1)} == {(q, b) for q in "ab" for b in (1, 0, -1)}


def test_what_is_owed_stays_when_the_queues_change() -> None:
    shares = WeightedQueues()
    shares.set_queues({"a": 1})
    first = planned(shares, [1] * 5)
    shares.set_queues({"a": 1, "b": 1})
    shares.set_queues({"a": 1})
    assert first + planned(shares, [1] * 5) == {("a", 1): 5, ("a", 0): 3, ("a", -1): 2}


def served(shares: WeightedQueues, limit: int, empty: set[tuple[str, int]]) -> Counter[tuple[str, int]]:
    """What a store gives for one plan, whose lines never end but for those that are empty."""
    plan = shares.plan(limit)
    jobs: list[Job] = []
    for want in plan:
        count = 0 if (want.queue, want.band) in empty else min(want.count, limit - len(jobs))
        jobs += [Job(b"", "t", b"", want.queue, want.band)] * count
    for want in plan:
        if (want.queue, want.band) not in empty:
            jobs += [Job(b"", "t", b"", want.queue, want.band)] * (limit - len(jobs))
    shares.record(plan, jobs)
    return Counter((job.queue, job.priority) for job in jobs)


def test_weights_of_queues_hold_also_when_all_jobs_are_of_one_band() -> None:
    shares = WeightedQueues()
    shares.set_queues({"critical": 7, "bulk": 3})
    empty = {(queue, band) for queue in ("critical", "bulk") for band in (1, -1)}
    total: Counter[tuple[str, int]] = Counter()
    for _ in range(200):
        total += served(shares, 10, empty)
    assert abs(total["critical", 0] - 1400) <= 20
    assert sum(total.values()) == 2000


def test_a_line_that_was_empty_has_its_share_as_soon_as_something_comes() -> None:
    shares = WeightedQueues()
    shares.set_queues({"a": 1, "b": 1})
    for _ in range(50):
        served(shares, 10, {("b", 1), ("b", 0), ("b", -1)})
    total: Counter[tuple[str, int]] = Counter()
    for _ in range(10):
        total += served(shares, 10, set())
    assert abs(sum(total["b", band] for band in (1, 0, -1)) - 50) <= 3


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 50), min_size=1),
    st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20)),
    st.lists(st.integers(1, 40), min_size=1, max_size=60),
)
def test_a_plan_never_asks_for_more_or_less_than_there_is_room(
    queues: dict[str, int], bands: tuple[int, int, int], limits: list[int]
) -> None:
    shares = WeightedQueues(bands)
    shares.set_queues(queues)
    for limit in limits:
        plan = shares.plan(limit)
        assert sum(want.count for want in plan) == limit
        assert min(want.count for want in plan) >= 0


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1),
    st.lists(st.integers(1, 40), min_size=20, max_size=60),
)
def test_shares_hold_over_time_whatever_the_claims_size(queues: dict[str, int], limits: list[int]) -> None:
    shares = WeightedQueues()
    shares.set_queues(queues)
    total = planned(shares, limits)
    for (queue, band), count in total.items():
        fair = sum(limits) * queues[queue] / sum(queues.values()) * {1: 0.5, 0: 0.3, -1: 0.2}[band]
        assert abs(count - fair) < 3


def with_jobs(*queues: str) -> MemoryStore:
    store = MemoryStore()
    store.insert([Job(uuid7(), "t", b"[]", queue) for queue in queues])
    return store


def queues_of(plan: ClaimPlan) -> set[str]:
    return {want.queue for want in plan.wants(10, due=False)}


def test_queues_that_other_programs_serve_are_left_out_of_a_star_unless_they_are_named() -> None:
    store = with_jobs("mail", "php", "node")
    mark_external(store, "php", store.time())
    mark_external(store, "node", store.time())
    assert queues_of(ClaimPlan(store, {"*": 1}, "strict")) == {"mail"}
    assert queues_of(ClaimPlan(store, {"*": 1, "php": 1}, "strict")) == {"mail", "php"}
    assert queues_of(ClaimPlan(store, {"node": 1}, "strict")) == {"node"}


def test_a_queue_that_a_worker_serves_already_is_left_out_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_plan, "FIND_EXTERNAL_EVERY", 0.0)
    store = with_jobs("mail", "php")
    plan = ClaimPlan(store, {"*": 1}, "strict")
    assert queues_of(plan) == {"mail", "php"}
    mark_external(store, "php", store.time())
    assert not plan.find_new_queues()
    assert queues_of(plan) == {"mail"}


def test_an_idle_worker_does_not_read_the_marks_at_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    store = with_jobs("php")
    mark_external(store, "php", store.time())
    reads: list[MemoryStore] = []

    def counted(store: MemoryStore) -> frozenset[str]:
        reads.append(store)
        return find_external(store)

    monkeypatch.setattr(claim_plan, "find_external", counted)
    plan = ClaimPlan(store, {"*": 1}, "strict")
    assert [plan.find_new_queues() for _ in range(100)] == [False] * 100
    assert len(reads) == 1


OWN = own_queue("web-1|1.1:9:1:0")


def test_its_own_queues_are_asked_for_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_plan, "OWN_EVERY", 1000.0)
    plan = ClaimPlan(MemoryStore(), {"mail": 1, OWN: 0}, "strict")
    own = [Want(OWN, band, 7) for band in (1, 0, -1)]
    mail = [Want("mail", band, 7) for band in (1, 0, -1)]
    assert plan.wants(7, due=False) == [*own, *mail], "before all others: else they would wait behind a backlog"
    assert plan.wants(7, due=False) == mail
    monkeypatch.setattr(claim_plan, "OWN_EVERY", 0.0)
    assert plan.wants(7, due=False) == [*own, *mail]


def test_workers_with_queues_of_their_own_are_of_one_kind() -> None:
    """Else each new job would wake all of them."""
    workers = [Worker(MemoryStore(), {}, WorkerSettings({"mail": 1, f"{OWN}{n}": 0})) for n in (1, 2)]
    topics = {worker._pump_loop._wanted_topic() for worker in workers}
    assert topics == {"work:mail"}
    for worker in workers:
        worker.pump.wakeup.close()


def test_a_star_without_any_queue_asks_for_its_own() -> None:
    assert queues_of(ClaimPlan(MemoryStore(), {"*": 1, OWN: 0}, "strict")) == {OWN}


def test_what_came_from_its_own_queues_changes_no_shares() -> None:
    plan = ClaimPlan(MemoryStore(), {"a": 1, "b": 1, OWN: 0}, (5, 3, 2))
    plain = ClaimPlan(MemoryStore(), {"a": 1, "b": 1}, (5, 3, 2))
    plan.record(plan.wants(10, due=False), [Job(uuid7(), "t", b"[]", OWN)] * 10)
    plain.record(plain.wants(10, due=False), [])
    assert plan.wants(10, due=False) == plain.wants(10, due=False)


def test_queues_of_other_hosts_are_left_out_of_a_star_unless_they_are_named() -> None:
    store = with_jobs("mail", "@mail", OWN)
    assert queues_of(ClaimPlan(store, {"*": 1}, "strict")) == {"mail", "@mail"}
    assert queues_of(ClaimPlan(store, {"*": 1, OWN: 1}, "strict")) == {"mail", "@mail", OWN}
    assert not ClaimPlan(with_jobs(OWN), {"*": 1}, "strict").find_new_queues()


def test_a_mark_that_is_not_renewed_lapses() -> None:
    store = with_jobs("php")
    mark_external(store, "php", store.time() - MARKED_FOR)
    assert find_external(store) == frozenset()
    assert store.kv_list(external_queues.PREFIX) == {}, "nor is it kept"
    mark_external(store, "php", store.time() - MARKED_FOR // 2)
    mark_external(store, "php", store.time())
    assert find_external(store) == {"php"}
