"""Bells: hints, and yet they come."""

import threading
import time

from tarry.model import lifecycle
from tarry.model.duration import HOUR
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Limit
from tarry.model.outcome import Released, Returned
from tarry.store.base import Store
from tarry.store.conformance.cases import NOW, Promises, put, running, seen, settle, taken
from tarry.store.shared.bell import FOLLOW, FULL, RESULT, WORK, Bell

WAIT = 10.0
"""Seconds that a ring may take to come; one that comes at all comes at once."""


class Ringing(Promises):
    """Bells: hints, and yet they come."""

    def test_insert_rings_for_work(self, store: Store) -> None:
        """Who is armed for work before an insert is awake soon after it; for a scheduled job too."""
        for due in (NOW, NOW + HOUR):
            with Bells(store) as bells:
                bell = bells.armed(WORK + "default")
                put(store, due=due)
                assert rings(bell)

    def test_a_ring_before_the_wait_is_heard(self, store: Store) -> None:
        """From arming on, not from waiting on; and from another thread while waiting."""
        with Bells(store) as bells:
            bell = bells.armed(WORK)
            thread = threading.Timer(0.05, put, [store])
            thread.start()
            assert rings(bell)
            thread.join()

    def test_one_of_each_kind(self, store: Store) -> None:
        """Workers of different kinds all hear of work."""
        with Bells(store) as bells:
            armed = [bells.armed(WORK + "a"), bells.armed(WORK + "b")]
            put(store)
            assert all(rings(bell) for bell in armed)

    def test_given_back_rings_for_work(self, store: Store) -> None:
        """A job that waits again is work."""
        with Bells(store) as bells:
            (job,) = running(store)
            bell = bells.armed(WORK)
            settle(store, job, Released())
            assert rings(bell)

    def test_finished_rings_for_results(self, store: Store) -> None:
        """All who wait for results hear that a job has finished."""
        with Bells(store) as bells:
            (job,) = running(store)
            armed = [bells.armed(RESULT), bells.armed(RESULT)]
            settle(store, job, Returned())
            assert all(rings(bell) for bell in armed)

    def test_followers_hear_of_every_step(self, store: Store) -> None:
        """When a job begins, says how far it is, waits again, and ends."""
        with Bells(store) as bells:
            put(store)
            bell = bells.armed(FOLLOW)
            (job,) = taken(store)
            assert rings(bell)
            for step in (
                lambda: store.mark("ann", [(job.id, job.epoch, b"[0.5]")]),
                lambda: store.apply([lifecycle.after(job, Released(), DEFAULT, NOW)], NOW),
                lambda: store.apply([lifecycle.cancelled(seen(store, job), DEFAULT, NOW)], NOW),
            ):
                bell.arm(FOLLOW)
                step()
                assert rings(bell)

    def test_room_under_a_limit_rings_for_work(self, store: Store) -> None:
        """What was held back may start now."""
        with Bells(store) as bells:
            store.limit("task:mail", Limit(1))
            put(store, 2, lane="")
            (job,) = taken(store)
            bell = bells.armed(WORK)
            settle(store, job, Returned())
            assert rings(bell)

    def test_a_limit_that_is_raised_rings_for_work(self, store: Store) -> None:
        """From none at once to some: what waits may start now, and does."""
        with Bells(store) as bells:
            for most in (1, 0):
                store.limit("task:mail", Limit(most))
            put(store, 2, lane="")
            assert taken(store) == []
            bell = bells.armed(WORK)
            store.limit("task:mail", Limit(2))
            assert rings(bell)
            assert len(taken(store)) == 2

    def test_recall_rings_workers(self, store: Store) -> None:
        """Workers with and without room wake to look whether what they run is still wanted."""
        with Bells(store) as bells:
            armed = [bells.armed(FULL), bells.armed(WORK)]
            store.ring_recall()
            assert all(rings(bell) for bell in armed)

    def test_a_wait_ends_by_itself(self, store: Store) -> None:
        """Nothing rings: it ends when its time is over; and a disarmed bell is not rung."""
        with Bells(store) as bells:
            bell = bells.armed(WORK)
            bell.disarm()
            put(store)
            start = time.monotonic()
            assert bell.wait(0.05) == b""
            assert time.monotonic() - start >= 0.04

    def test_poked(self, store: Store) -> None:
        """Any thread of the process may wake the sleeper."""
        with Bells(store) as bells:
            bell = bells.armed(FULL)
            bell.poke()
            assert rings(bell)


class Bells:
    """Bells of a store, closed in the end."""

    def __init__(self, store: Store) -> None:
        self._store, self._bells = store, list[Bell]()

    def armed(self, topic: str) -> Bell:
        """A new one, armed."""
        bell = self._store.bell()
        bell.arm(topic)
        self._bells.append(bell)
        return bell

    def __enter__(self) -> "Bells":
        return self

    def __exit__(self, *_: object) -> None:
        for bell in self._bells:
            bell.close()


def rings(bell: Bell) -> bool:
    """Whether it has rung: heard well before its time limit."""
    start = time.monotonic()
    bell.wait(WAIT)
    return time.monotonic() - start < WAIT / 2
