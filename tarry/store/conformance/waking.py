"""Wake-ups: no promise depends on them, but a working store sends them."""

import threading
import time
from collections.abc import Callable

import pytest

from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import HOUR
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Limit
from tarry.model.outcome import Released, Returned, Snoozed
from tarry.model.wake import wake_reasons
from tarry.store.conformance.cases.jobs import (
    EVERYTHING,
    FORGETS,
    LEASE,
    NOW,
    Promises,
    in_state,
    put,
    running,
    settle,
    taken,
)
from tarry.store.conformance.cases.sleepers import WAIT, Sleepers, is_short, wakes
from tarry.store.rules.base import NextClaim, Store
from tarry.store.rules.sleeper import FOLLOW, FULL, RESULT, WORK, heard_reasons

CHANGES: list[tuple[State, Callable[[Job], Change]]] = [
    (State.RUNNING, lambda job: lifecycle.after(job, Returned(), DEFAULT, NOW)),
    (State.RUNNING, lambda job: lifecycle.after(job, Returned(), FORGETS, NOW)),
    (State.RUNNING, lambda job: lifecycle.after(job, Released(), DEFAULT, NOW)),
    (State.RUNNING, lambda job: lifecycle.after(job, Snoozed(HOUR), DEFAULT, NOW)),
    (State.SCHEDULED, lambda job: lifecycle.run_now(job, NOW)),
    (State.READY, lambda job: lifecycle.cancel(job, DEFAULT, NOW)),
    (State.DEAD, lambda job: lifecycle.run_now(job, NOW)),
    (State.DONE, lifecycle.forget),
]


class Waking(Promises):
    """Wake-ups: no promise depends on them, but a working store sends them."""

    def test_insert_wakes_for_work(self, store: Store) -> None:
        """A sleeper that listens for work before an insert wakes soon after it; also if the job is scheduled."""
        # A worker sleeps until the next job is due, and the new one may be due earlier.
        for due in (NOW, NOW + HOUR):
            with Sleepers(store) as sleepers:
                sleeper = sleepers.listen(WORK + "default")
                put(store, due=due)
                assert wakes(sleeper)

    def test_what_comes_before_the_wait_wakes(self, store: Store) -> None:
        """A sleeper wakes for events since `listen`, not only since `wait`; also from another thread."""
        with Sleepers(store) as sleepers:
            sleeper = sleepers.listen(WORK)
            thread = threading.Timer(0.05, put, [store])
            thread.start()
            assert wakes(sleeper)
            thread.join()

    def test_who_says_that_it_listens_is_woken(self, store: Store) -> None:
        """A sleep that was ended from inside the process leaves the sleeper listening, or it says that it is not."""
        with Sleepers(store) as sleepers:
            sleeper = sleepers.listen(WORK)
            sleeper.wake()
            assert is_short(lambda: sleeper.sleep(WAIT))
            if sleeper.is_listening():
                put(store)
                assert is_short(lambda: sleeper.sleep(WAIT))

    def test_one_of_each_kind(self, store: Store) -> None:
        """One worker of each kind wakes for work."""
        with Sleepers(store) as sleepers:
            listening = [sleepers.listen(WORK + "a"), sleepers.listen(WORK + "b")]
            put(store)
            assert all(wakes(sleeper) for sleeper in listening)

    @pytest.mark.parametrize(("state", "change"), CHANGES)
    def test_a_change_wakes_whom_the_model_says(
        self, store: Store, state: State, change: Callable[[Job], Change]
    ) -> None:
        """All sleepers that listen for a reason of `wake_reasons`."""
        job = in_state(store, state)
        made = change(job)
        reasons = wake_reasons([made], makes_room=False)
        with Sleepers(store) as sleepers:
            topics = [topic for topic in (WORK, RESULT, FOLLOW) if heard_reasons(topic).intersection(reasons)]
            # Followers twice: of these all wake, and not only one of a kind.
            listening = [sleepers.listen(topic) for topic in (*topics, *topics[-1:])]
            assert store.apply([made], NOW) == [True]
            assert all(wakes(sleeper) for sleeper in listening)

    def test_several_changes_wake_whom_each_would_wake(self, store: Store) -> None:
        """In one call of the store."""
        given_back, finished = running(store, 2)
        with Sleepers(store) as sleepers:
            listening = [sleepers.listen(topic) for topic in (WORK, RESULT, FOLLOW)]
            changes = [
                lifecycle.after(given_back, Released(), DEFAULT, NOW),
                lifecycle.after(finished, Returned(), DEFAULT, NOW),
            ]
            assert store.apply(changes, NOW) == [True, True]
            assert all(wakes(sleeper) for sleeper in listening)

    def test_a_claim_and_progress_wake_followers(self, store: Store) -> None:
        """When a job starts, and when it reports progress."""
        with Sleepers(store) as sleepers:
            put(store)
            sleeper = sleepers.listen(FOLLOW)
            (job,) = taken(store)
            assert wakes(sleeper)
            sleeper.listen(FOLLOW)
            store.save_progress("ann", [(job.id, job.epoch, b"[0.5]")])
            assert wakes(sleeper)

    def test_room_under_a_limit_wakes_for_work(self, store: Store) -> None:
        """A job that was held back may start now."""
        with Sleepers(store) as sleepers:
            store.limit("task:mail", Limit(1))
            put(store, 2, lane="")
            (job,) = taken(store)
            sleeper = sleepers.listen(WORK)
            settle(store, job, Returned())
            assert wakes(sleeper)

    def test_the_late_outcome_of_a_cancelled_job_wakes_for_work(self, store: Store) -> None:
        """Its attempt kept the job's place under a limit until then."""
        with Sleepers(store) as sleepers:
            store.limit("task:mail", Limit(1))
            put(store, 2, lane="")
            (job,) = taken(store)
            assert store.apply([lifecycle.cancel(job, DEFAULT, NOW)], NOW) == [True]
            sleeper = sleepers.listen(WORK)
            assert store.apply([lifecycle.after(job, Returned(), DEFAULT, NOW)], NOW) == [False]
            assert wakes(sleeper)

    def test_a_limit_that_is_raised_wakes_for_work(self, store: Store) -> None:
        """Raised from 0: the waiting jobs may start now, and do."""
        with Sleepers(store) as sleepers:
            for most in (1, 0):
                store.limit("task:mail", Limit(most))
            put(store, 2, lane="")
            assert taken(store) == []
            sleeper = sleepers.listen(WORK)
            store.limit("task:mail", Limit(2))
            assert wakes(sleeper)
            assert len(taken(store)) == 2

    def test_recall_wakes_workers(self, store: Store) -> None:
        """Workers with and without room wake, to check whether their jobs are still wanted."""
        with Sleepers(store) as sleepers:
            listening = [sleepers.listen(FULL), sleepers.listen(WORK)]
            store.wake_for_recall()
            assert all(wakes(sleeper) for sleeper in listening)

    def test_a_sleep_may_claim_at_its_end(self, store: Store) -> None:
        """A job that ends the sleep is claimed as by `exchange`, or not at all."""
        sleeper, claim = store.worker_wakeup(), NextClaim(EVERYTHING, 10, "ann", LEASE)
        sleeper.listen(WORK)
        thread = threading.Timer(0.05, put, [store])
        thread.start()
        start = time.monotonic()
        answer = store.sleep_and_claim(sleeper, WAIT, (), claim)
        assert time.monotonic() - start < WAIT / 2
        thread.join()
        (job,) = answer.jobs if answer else taken(store)
        assert (job.owner, job.epoch, job.state) == ("ann", 1, State.RUNNING)
        assert store.get([job.id]) == [job]
        assert taken(store, owner="bob") == []
        assert settle(store, job, Returned()).state is State.DONE
        sleeper.close()

    def test_a_wait_ends_by_itself(self, store: Store) -> None:
        """When its time is over, if nothing wakes the sleeper; `ignore` stops events from waking it."""
        with Sleepers(store) as sleepers:
            sleeper = sleepers.listen(WORK)
            sleeper.ignore()
            put(store)
            start = time.monotonic()
            assert sleeper.wait(0.05) == b""
            assert time.monotonic() - start >= 0.04

    def test_any_thread_may_wake(self, store: Store) -> None:
        """Any thread of the sleeper's own process."""
        with Sleepers(store) as sleepers:
            sleeper = sleepers.listen(FULL)
            sleeper.wake()
            assert wakes(sleeper)
