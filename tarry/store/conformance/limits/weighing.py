"""Promise 8, fourth part: lanes of a task share starts by weight, where keys have weights of their own."""

from collections import Counter
from typing import Any

import pytest

from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import KeyLimit, Limit
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import EVERYTHING, LEASE, NOW, Promises, made, outcomes, put, settle, taken
from tarry.store.conformance.limits.key_limiting import MAIL, lanes_of
from tarry.store.conformance.limits.limiting import EACH, TASK
from tarry.store.rules import key_limits
from tarry.store.rules.base import BANDS, Store, Want


def starts(store: Store, count: int, batch: int = 7, now: int = NOW) -> list[str]:
    """The lanes of that many starts, one after the other. Each attempt ends with the next claim."""
    lanes, jobs = list[str](), list[Job]()
    while len(lanes) < count:
        ended = [lifecycle.after(job, Returned(), DEFAULT, now) for job in jobs]
        jobs = store.exchange(ended, EVERYTHING, min(batch, count - len(lanes)), "ann", LEASE, now).jobs
        assert len(jobs) == min(batch, count - len(lanes))
        lanes += [job.lane or "" for job in jobs]
    settle_all(store, jobs)
    return lanes


def settle_all(store: Store, jobs: list[Job]) -> None:
    """All of them are done."""
    for job in jobs:
        settle(store, job, Returned())


def fill(store: Store, jobs: dict[str, int]) -> None:
    """Puts so many jobs into each lane of the task."""
    store.insert([job for lane, count in jobs.items() for job in made(store, count, lane=lane)])


def check_shares(lanes: list[str], weights: dict[str, int], batch: int, window: int) -> None:
    """Any so many starts are shared by weight: within 5 %, and one start. batch: so many were claimed at a time."""
    # The jobs of a claim come in the order to run them, whatever their turns were.
    whole, window = sum(weights.values()), window - window % batch
    for first in range(0, len(lanes) - window + 1, batch):
        found = Counter(lanes[first : first + window])
        for lane, weight in weights.items():
            fair = window * weight / whole
            assert abs(found[lane] - fair) <= 0.05 * fair + 1, (first, lane, found[lane], fair)


class Weighing(Promises):
    """Whose turn it is where keys have weights."""

    @pytest.mark.parametrize("batch", [1, 7, 100])
    def test_starts_are_shared_by_weight(self, store: Store, batch: int) -> None:
        """Whatever the sizes of their backlogs; those without a weight count one each."""
        weights = {"whale": 60, "shark": 30, "ann": 1, "bob": 1, "": 8}
        fill(store, {"whale": 400, "shark": 250, "ann": 30, "bob": 90, "": 80})
        for lane in ("whale", "shark", ""):
            store.limit_key(MAIL, lane, KeyLimit(weight=weights[lane]))
        check_shares(starts(store, 500, batch), weights, batch, 100)

    def test_a_small_weight_waits_for_one_round(self, store: Store) -> None:
        """Beside one of 1,000 a lane of weight 1 starts within 1,001 starts."""
        fill(store, {"whale": 1100, "ann": 3})
        store.limit_key(MAIL, "whale", KeyLimit(weight=1000))
        assert starts(store, 1001, 250).count("ann") == 1

    def test_a_weight_changes_while_jobs_run(self, store: Store) -> None:
        """The next claim knows it; with the last one, turns are equal again."""
        fill(store, {"whale": 400, "ann": 400})
        store.limit(EACH, Limit(50))
        for weight in (9, 3, 1):
            store.limit_key(MAIL, "whale", KeyLimit(weight=weight))
            check_shares(starts(store, 60, 20), {"whale": weight, "ann": 1}, 20, 60)
        store.limit_key(MAIL, "whale", KeyLimit(weight=9))
        store.limit_key(MAIL, "whale", None)
        assert store.limits()[EACH][0] == Limit(50)
        store.limit_key(MAIL, "ann", KeyLimit(weight=4))
        check_shares(starts(store, 60, 20), {"whale": 1, "ann": 4}, 20, 60)
        store.limit_key(MAIL, "ann", None)
        check_shares(starts(store, 60, 20), {"whale": 1, "ann": 1}, 20, 60)

    def test_a_key_without_one_has_the_weight_for_each(self, store: Store) -> None:
        """As the limit for each key says."""
        fill(store, dict.fromkeys(("whale", "ann", "bob"), 100))
        store.limit(EACH, Limit(weight=4))
        assert store.limits()[EACH][0] == Limit(weight=4)
        check_shares(starts(store, 30, 10), {"whale": 1, "ann": 1, "bob": 1}, 10, 30)
        store.limit_key(MAIL, "whale", KeyLimit(weight=8))
        assert store.limits()[EACH][0] == Limit(weight=4, has_key_limits=True, has_weights=True)
        check_shares(starts(store, 80, 10), {"whale": 8, "ann": 4, "bob": 4}, 10, 40)

    def test_many_keys_without_a_weight(self, store: Store) -> None:
        """They have a turn each in every round, in the order of their names."""
        names = [f"c{number:03}" for number in range(150)]
        fill(store, dict.fromkeys(names, 3) | {"whale": 300})
        store.limit_key(MAIL, "whale", KeyLimit(weight=75))
        lanes = starts(store, 450, 25)
        check_shares(["whale" if lane == "whale" else "" for lane in lanes], {"whale": 75, "": 150}, 25, 225)
        others = [lane for lane in lanes if lane != "whale"]
        assert set(Counter(others[:130]).values()) == {1}
        assert set(Counter(others).values()) <= {1, 2, 3}

    def test_many_keys_with_weights(self, store: Store) -> None:
        """Those without one have their turns, too, though their names come behind."""
        weights = {f"a{number:02}": 2 for number in range(66)} | {f"z{number}": 1 for number in range(9)}
        fill(store, dict.fromkeys(weights, 5))
        for lane in weights:
            if weights[lane] == 2:
                store.limit_key(MAIL, lane, KeyLimit(weight=2))
        lanes = starts(store, 282, 20)
        check_shares(lanes, weights, 20, 141)
        assert weights.keys() == set(lanes)

    def test_a_full_or_paused_key_leaves_its_turns_to_others(self, store: Store) -> None:
        """And has no more of them than its weight says when it comes back."""
        fill(store, {"whale": 200, "ann": 200, "bob": 200})
        store.limit(EACH, Limit(50))
        store.limit_key(MAIL, "whale", KeyLimit(2, weight=100))
        jobs = taken(store, 30)
        assert lanes_of(jobs) == {"ann": 14, "bob": 14, "whale": 2}
        settle_all(store, jobs)
        store.limit_key(MAIL, "whale", KeyLimit(is_paused=True, weight=100))
        assert Counter(starts(store, 60, 10)) == {"ann": 30, "bob": 30}
        store.limit_key(MAIL, "whale", KeyLimit(weight=2))
        check_shares(starts(store, 80, 10), {"whale": 2, "ann": 1, "bob": 1}, 10, 40)
        assert store.recount(NOW) == 0

    def test_keys_that_have_no_jobs_take_no_turns(self, store: Store) -> None:
        """A key that comes has its turns at once, and none for the time when it had no jobs."""
        fill(store, {"ann": 60, "bob": 1, "cid": 1})
        store.limit_key(MAIL, "whale", KeyLimit(weight=1000))
        store.limit_key(MAIL, "shark", KeyLimit(weight=2))
        assert Counter(starts(store, 42, 21)) == {"ann": 40, "bob": 1, "cid": 1}
        fill(store, {"shark": 60})
        check_shares(starts(store, 30, 5), {"shark": 2, "ann": 1}, 5, 15)

    def test_a_limit_of_the_task_is_shared_by_weight(self, store: Store) -> None:
        """As are places that come free one by one."""
        fill(store, {"whale": 90, "ann": 60})
        store.limit(TASK, Limit(3))
        store.limit_key(MAIL, "whale", KeyLimit(weight=2))
        check_shares(starts(store, 90, 3), {"whale": 2, "ann": 1}, 3, 30)

    def test_a_rate_of_a_key_with_a_weight(self, store: Store) -> None:
        """Holds; the other keys go on meanwhile."""
        fill(store, {"whale": 30, "ann": 30})
        store.limit_key(MAIL, "whale", KeyLimit(None, 20, SECOND, weight=10))
        assert lanes_of(taken(store, 20)) == {"ann": 19, "whale": 1}
        assert lanes_of(taken(store, 20, now=NOW + 3 * SECOND)) == {"ann": 11, "whale": 1}

    def test_bands_and_queues_share_the_turns_of_a_task(self, store: Store) -> None:
        """All jobs start, whatever lines they are in."""
        for number in range(60):
            lane = ("whale", "ann", "bob")[number % 3]
            put(store, lane=lane, queue=("default", "b")[number % 2], priority=number % 4 - 1)
        store.limit_key(MAIL, "ann", KeyLimit(weight=7))
        wants = [Want(queue, band, 3) for queue in ("default", "b") for band in BANDS]
        jobs = [store.claim(wants, 4, "ann", LEASE, NOW) for _ in range(15)]
        assert [len(some) for some in jobs] == [4] * 15
        assert store.claim(wants, 4, "ann", LEASE, NOW) == []

    @pytest.mark.parametrize("weights", [{}, {"whale": 50}])
    @pytest.mark.parametrize("line", [{"queue": "b"}, {"priority": 1}])
    def test_lanes_of_other_lines_take_no_turns(
        self, store: Store, weights: dict[str, int], line: dict[str, Any]
    ) -> None:
        """A lane that has jobs in another queue or priority alone keeps no lane of this one waiting."""
        fill(store, dict.fromkeys(("ann", "bob", "whale"), 110))
        store.insert(made(store, 110, lane="cid", **line))
        for lane, weight in weights.items():
            store.limit_key(MAIL, lane, KeyLimit(weight=weight))
        wants, found = [Want(queue, band, 1) for queue in ("default", "b") for band in BANDS], Counter[str]()
        for _ in range(104):
            jobs = store.claim(wants, 2, "ann", LEASE, NOW)
            outcomes(store, jobs, Returned())
            found.update(job.lane or "" for job in jobs)
        assert found["cid"] == 104
        assert found["ann"] == found["bob"] == 2 if weights else found["ann"] >= 34

    def test_what_is_no_weight(self, store: Store) -> None:
        """A value that nothing of ours wrote: lanes take equal turns."""
        fill(store, {"whale": 40, "ann": 40})
        store.limit_key(MAIL, "whale", KeyLimit(weight=10))
        for value in (b"", b"[]", b"{", b'{"whale": "x"}', b'{"whale": 100000}', b"\xff"):
            assert store.kv_cas(key_limits.WEIGHTS + MAIL, value, store.kv_get(key_limits.WEIGHTS + MAIL))
            assert len(starts(store, 8, 4)) == 8

    def test_a_key_like_what_is_kept_of_a_task(self, store: Store) -> None:
        """Keys are any text: also these take turns with others, with weights and without."""
        lanes = ["0 0 0 0\x1f", "1 2 3 4\x1fy", "1 2 3 4\x1fz", "12 3", "ann", "zoe"]
        fill(store, dict.fromkeys(lanes, 30))
        assert Counter(starts(store, 60, 1)) == dict.fromkeys(lanes, 10)
        store.limit_key(MAIL, "zoe", KeyLimit(weight=3))
        check_shares(starts(store, 48, 4), dict.fromkeys(lanes, 1) | {"zoe": 3}, 4, 48)
        store.limit_key(MAIL, "zoe", None)
        assert set(starts(store, 6, 1)) == {*lanes}
