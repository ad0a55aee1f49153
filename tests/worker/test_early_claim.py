"""A store that claims at the end of a worker's sleep: the jobs start at the next step, with no call of the store."""

from collections.abc import Callable, Sequence

import pytest

from tarry.errors import StoreUnavailable
from tarry.model.job import Job, State
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Exchange, NextClaim
from tarry.store.rules.sleeper import Wakeup
from tests.worker.manual_pump import OWNER, MakePump, ManualPump


class Sleeps:
    """Sleeps at whose end the store claims. first: what happens meanwhile."""

    def __init__(self, manual: ManualPump) -> None:
        self.manual = manual
        self.first: Callable[[], object] = lambda: None
        self.claims: list[NextClaim] = []
        self.error: StoreUnavailable | None = None
        manual.store.sleep_and_claim = self  # type: ignore[method-assign]

    def __call__(self, wakeup: Wakeup, seconds: float, also: Sequence[int], claim: NextClaim) -> Exchange | None:
        self.first()
        self.claims.append(claim)
        now = self.manual.clock.now()
        # Not the counting store's own method: only calls of the pump count.
        answer = MemoryStore.exchange(self.manual.store, (), claim.wants, claim.limit, claim.owner, claim.lease, now)
        if self.error:
            raise self.error
        return Exchange([], answer.jobs, answer.next_due, claimed_at=now)

    def once(self, first: Callable[[], object]) -> None:
        """One sleep."""
        self.first = first
        self.manual.turns()
        self.manual.store.calls.clear()
        self.manual.pump.sleep(1.0, ())


@pytest.fixture
def manual(make: MakePump) -> ManualPump:
    return make(threads=2, queues={"default": 1})


@pytest.fixture
def sleeps(manual: ManualPump) -> Sleeps:
    return Sleeps(manual)


def test_jobs_start_without_a_call_of_the_store(manual: ManualPump, sleeps: Sleeps) -> None:
    sleeps.once(manual.insert)
    (claim,) = sleeps.claims
    assert (claim.limit, claim.owner) == (2, OWNER)
    assert manual.pump.held_count == 1, "it is held from the end of the sleep on"
    assert manual.pump.step() == 0.0
    assert len(manual.sync.on) == 1
    assert manual.store.calls["exchange"] == 0
    manual.sync.end_all()
    manual.turns()
    assert manual.pump.held_count == 0


def test_a_sleep_that_brings_nothing_was_a_look(manual: ManualPump, sleeps: Sleeps) -> None:
    sleeps.once(lambda: None)
    assert manual.pump.step() > 0
    assert not manual.store.calls


def test_when_the_next_job_is_due_is_known(manual: ManualPump, sleeps: Sleeps) -> None:
    sleeps.once(lambda: manual.insert(due=manual.clock.now() + 400_000))
    assert 0.39 < manual.pump.step() <= 0.4
    assert not manual.store.calls


def test_what_has_ended_meanwhile_is_settled_after_the_start(manual: ManualPump, sleeps: Sleeps) -> None:
    (long,) = manual.insert()
    manual.turns()

    def both() -> None:
        manual.insert()
        manual.sync.end_all()

    sleeps.once(both)
    assert manual.pump.step() == 0.0
    assert len(manual.sync.on) == 1
    assert manual.states([long]) == [State.RUNNING]
    assert manual.pump.is_urgent
    manual.turns()
    assert manual.states([long]) == [State.DONE]


def test_one_that_was_told_to_stop_gives_back_what_it_got(manual: ManualPump, sleeps: Sleeps) -> None:
    jobs = []

    def stopped() -> None:
        jobs.extend(manual.insert())
        manual.pump.stop()

    sleeps.once(stopped)
    manual.turns()
    assert not manual.sync.on
    assert manual.pump.held_count == 0
    assert manual.states(jobs) == [State.READY]


def test_one_that_gives_back_all_at_once_gives_back_this_too(manual: ManualPump, sleeps: Sleeps) -> None:
    jobs = []
    sleeps.once(lambda: jobs.extend(manual.insert()))
    manual.pump.release_all()
    assert manual.states(jobs) == [State.READY]


def test_jobs_of_a_lost_answer_are_given_back(manual: ManualPump, sleeps: Sleeps) -> None:
    jobs = []
    sleeps.error = StoreUnavailable("the connection broke")
    sleeps.once(lambda: jobs.extend(manual.insert()))
    assert manual.states(jobs) == [State.RUNNING]
    manual.turns()
    assert len(manual.sync.on) == 1
    assert manual.store.get([jobs[0].id])[0].epoch == 2  # type: ignore[union-attr]


def test_without_room_no_claim_waits(manual: ManualPump, sleeps: Sleeps) -> None:
    manual.insert(2)
    manual.turns()
    manual.pump.wakeup.wake()
    manual.pump.sleep(1.0, ())
    assert not sleeps.claims


def test_while_the_store_is_away_no_claim_waits(manual: ManualPump, sleeps: Sleeps) -> None:
    manual.store.error = StoreUnavailable("away")
    manual.pump.step()
    manual.pump.wakeup.wake()
    manual.pump.sleep(1.0, ())
    assert not sleeps.claims


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_the_last_jobs_that_a_worker_may_have_are_not_given_back(make: MakePump, most: int) -> None:
    """`max_jobs`: neither more are claimed, nor is one counted twice that came with a sleep."""
    manual = make(threads=2, queues={"default": 1})
    manual.pump.max_jobs = most
    sleeps, jobs = Sleeps(manual), list[Job]()
    for _ in range(most + 2):
        sleeps.once(lambda: jobs.extend(manual.insert(2)))
        manual.turns()
        manual.sync.end_all()
        manual.turns()
    found = [manual.record(job) for job in jobs]
    assert [job.epoch for job in found if job.state is State.DONE] == [1] * most
    assert {(job.state, job.epoch) for job in found if job.state is not State.DONE} <= {(State.READY, 0)}
