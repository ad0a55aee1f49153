"""Promises about signals, and about jobs that sleep until one comes."""

import threading
from contextlib import closing

import pytest

from tarry.model import lifecycle
from tarry.model.duration import DAY, HOUR
from tarry.model.flow.signal import MOST_KEPT, Awaited, Signal, SignalWait
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.moving import NEVER
from tarry.model.outcome import Snoozed, Suspended
from tarry.store.conformance.cases.flows import FlowCase
from tarry.store.conformance.cases.jobs import NOW, running, seen, settle, side_by_side, taken
from tarry.store.rules import flows
from tarry.store.rules.base import Store, Want
from tarry.store.rules.ids import uuid7


class Signalling(FlowCase):
    """Signals, and jobs that sleep until one comes."""

    def test_early_signal_is_found(self, store: Store) -> None:
        """It is kept for whoever asks later, with its number; each address has numbers of its own."""
        first, second = sent("paid", "7", b"1"), sent("paid", "7", b"2")
        assert [store.flows.signal(one, NOW) for one in (first, second, sent("paid", "8", b"3"))] == [0, 0, 0]
        found = store.flows.signals(uuid7(), "paid", "7", 0)
        assert [(one.id, one.value, one.n) for one in found] == [(first.id, b"1", 1), (second.id, b"2", 2)]
        assert [one.value for one in store.flows.signals(uuid7(), "paid", "7", 1)] == [b"2"]
        assert [one.value for one in store.flows.signals(uuid7(), "paid", "8", 0)] == [b"3"]
        assert store.flows.signals(uuid7(), "pai", "d7", 0) == []

    def test_signal_wakes_the_waiter(self, store: Store) -> None:
        """The job is ready at once, in the same attempt, and the signal is there for it."""
        job = asleep(store, "paid", "7")
        assert (job.state, job.due) == (State.SCHEDULED, NEVER)
        assert store.flows.signal(sent("paid", "8"), NOW + 5) == 0
        assert store.flows.signal(sent("paid", "7", b"70"), NOW + 5) == 1
        woken = seen(store, job)
        assert (woken.state, woken.due, woken.state_since) == (State.READY, NOW + 5, NOW + 5)
        assert (woken.failures, woken.epoch) == (0, 1)
        (again,) = taken(store, now=NOW + 5)
        assert [one.value for one in store.flows.signals(again.id, "paid", "7", 0)] == [b"70"]

    def test_a_suspended_job_holds_no_slot_and_is_not_lost(self, store: Store) -> None:
        """It has no owner, and comes again at its time; also in a store that is opened anew."""
        (job,) = running(store)
        slept = settle(store, job, Suspended(NOW + 3 * DAY))
        with closing(self.reopen(store) or store) as again:
            assert (slept.state, slept.owner, again.reclaim(NOW + DAY)) == (State.SCHEDULED, "", [])
            assert taken(again, now=NOW + 3 * DAY - 1) == []
            assert [one.id for one in taken(again, now=NOW + 3 * DAY)] == [job.id]

    def test_signal_between_look_and_suspension(self, store: Store) -> None:
        """The suspension finds it, and the job is ready instead of asleep."""
        (job,) = running(store)
        assert store.flows.signals(job.id, "paid", "7", 0) == []
        store.flows.signal(sent("paid", "7"), NOW)
        slept = settle(store, job, Suspended(NEVER, Awaited("paid", "7")))
        assert (slept.state, slept.due) == (State.READY, NOW)
        assert store.flows.awaiting("", 10) == []

    def test_a_signal_that_was_taken_wakes_nobody(self, store: Store) -> None:
        """A job reads on from where it was."""
        store.flows.signal(sent("paid", "7"), NOW)
        assert asleep(store, "paid", "7", after=1).state is State.SCHEDULED
        assert store.flows.signal(sent("paid", "7"), NOW) == 1

    def test_a_signal_that_was_deleted_wakes_nobody(self, store: Store) -> None:
        """Who begins to wait finds none, and sleeps until the next one; its number alone is no signal."""
        store.flows.signal(sent("paid", "7", until=NOW + 1), NOW)
        while store.flows.tend(NOW + 1):
            pass
        job = asleep(store, "paid", "7")
        assert (job.state, job.due) == (State.SCHEDULED, NEVER)
        assert [one.job for one in store.flows.awaiting("", 10)] == [job.id]
        assert store.flows.signal(sent("paid", "7", b"2"), NOW + 2) == 1
        assert [one.value for one in store.flows.signals(job.id, "paid", "7", 0)] == [b"2"]

    def test_a_signal_that_gave_way_to_newer_ones_wakes_nobody(self, store: Store) -> None:
        """Of those that are kept some may be for a job that begins to wait, and others not."""
        for number in range(MOST_KEPT + 1):
            store.flows.signal(sent("paid", "7", b"%d" % number, NOW + 1 + number % 2), NOW)
        while store.flows.tend(NOW + 1):
            pass
        for after in (0, MOST_KEPT - 1):
            assert asleep(store, "paid", "7", after=after).state is State.READY
            taken(store)
        while store.flows.tend(NOW + 2):
            pass
        for after in (0, MOST_KEPT - 1, MOST_KEPT + 1):
            assert asleep(store, "paid", "7", after=after).state is State.SCHEDULED

    def test_a_signal_that_the_task_would_not_find_wakes_nobody(self, store: Store) -> None:
        """It has seen more of them, and they were deleted since."""
        job = asleep(store, "paid", "7", after=2)
        assert [store.flows.signal(sent("paid", "7", b"%d" % number), NOW) for number in range(3)] == [0, 0, 1]
        assert seen(store, job).state is State.READY

    def test_many_are_woken_in_pieces(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """One call wakes all, and those who wait elsewhere sleep on."""
        monkeypatch.setattr(flows, "WOKEN_AT_ONCE", 3)
        jobs, other = all_asleep(store, 9), asleep(store, "paid", "8")
        assert store.flows.signal(sent("paid", "7"), NOW) == len(jobs)
        assert [seen(store, job).state for job in jobs] == [State.READY] * len(jobs)
        assert not store.flows.tend(NOW)
        assert seen(store, other).state is State.SCHEDULED

    @pytest.mark.parametrize("again", [False, True])
    def test_what_breaks_off_goes_on(self, store: Store, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
        """The sender dies after any piece: tending wakes the others, but not who waits for the signal after this one.
        A second signal that breaks off too wakes all that the first one has left."""
        monkeypatch.setattr(flows, "WOKEN_AT_ONCE", 2)
        jobs, sends = all_asleep(store, 7), 1 + again
        for _ in range(sends):
            store.flows._send(sent("paid", "7"), NOW)
        later, *_ = taken(store)
        settle(store, later, Suspended(NEVER, Awaited("paid", "7", sends)))
        while store.flows.tend(NOW):
            pass
        sleeping = [job.id for job in jobs if seen(store, job).state is State.SCHEDULED]
        assert sleeping == [later.id]

    def test_two_waiters(self, store: Store) -> None:
        """Both get it."""
        jobs = [asleep(store, "paid", "7") for _ in range(2)]
        assert store.flows.signal(sent("paid", "7"), NOW) == 2
        assert [seen(store, job).state for job in jobs] == [State.READY] * 2
        assert [len(store.flows.signals(job.id, "paid", "7", 0)) for job in jobs] == [1, 1]

    def test_wakes_only_that_epoch(self, store: Store) -> None:
        """A job that has woken and now waits for something else, or has ended, stays as it is."""
        other, ended = asleep(store, "paid", "7", until=NOW + 1), asleep(store, "paid", "7")
        assert store.apply([lifecycle.cancel(ended, DEFAULT, NOW)], NOW) == [True]
        (again,) = taken(store, now=NOW + 1)
        later = settle(store, again, Snoozed(HOUR), now=NOW + 1)
        assert store.flows.signal(sent("paid", "7"), NOW + 2) == 0
        assert (seen(store, other), seen(store, ended).state) == (later, State.CANCELLED)

    @pytest.mark.parametrize("how", ["its time came", "run now", "cancelled and retried"])
    def test_a_job_that_is_put_off_before_it_is_called_still_waits(self, store: Store, how: str) -> None:
        """Whoever tidied up meanwhile: it was not called, so it waits for what it waited for, and a signal wakes it."""
        job = asleep(store, "paid", "7", until=NOW + HOUR)
        if how == "its time came":
            assert not store.claim([Want("other", 0, 10)], 10, "ann", HOUR, NOW + HOUR)
        if how == "cancelled and retried":
            assert store.apply([lifecycle.cancel(job, DEFAULT, NOW)], NOW) == [True]
        if how != "its time came":
            assert store.apply([lifecycle.run_now(seen(store, job), NOW)], NOW) == [True]
        ready = seen(store, job)
        while store.flows.tend(NOW + HOUR):
            pass
        assert store.apply([lifecycle.move(ready, NOW + HOUR, due=NOW + 2 * HOUR)], NOW + HOUR) == [True]
        assert [one.job for one in store.flows.awaiting("", 10)] == [job.id]
        assert store.flows.signal(sent("paid", "7"), NOW + HOUR) == 1
        assert seen(store, job).state is State.READY

    def test_waits_that_are_over_are_forgotten(self, store: Store) -> None:
        """Of a job that was called at its time, and then sleeps on for nothing."""
        job = asleep(store, "paid", "7", until=NOW + 1)
        (again,) = taken(store, now=NOW + 1)
        settle(store, again, Suspended(NEVER), now=NOW + 1)
        while store.flows.tend(NOW + 1):
            pass
        assert store.flows.awaiting("", 10) == []
        assert store.flows.signal(sent("paid", "7"), NOW + 1) == 0
        assert seen(store, job).state is State.SCHEDULED

    def test_time_limit_without_signal(self, store: Store) -> None:
        """The job comes at its time, and no signal is there for it."""
        job = asleep(store, "paid", "7", until=NOW + HOUR)
        assert taken(store, now=NOW + HOUR - 1) == []
        assert [one.id for one in taken(store, now=NOW + HOUR)] == [job.id]
        assert store.flows.signals(job.id, "paid", "7", 0) == []
        assert store.flows.awaiting("", 10) == []

    def test_same_signal_twice_is_one(self, store: Store) -> None:
        """So it can be sent again when its answer was lost."""
        signal, job = sent("paid", "7"), asleep(store, "paid", "7")
        assert [store.flows.signal(signal, NOW) for _ in range(2)] == [1, 0]
        assert len(store.flows.signals(job.id, "paid", "7", 0)) == 1

    def test_signals_and_suspensions_at_once(self, store: Store) -> None:
        """No wake-up is lost."""
        jobs = running(store, 40)
        go = threading.Barrier(8)

        def work(number: int) -> None:
            go.wait(30)
            for job in jobs[number // 2 :: 4]:
                if number % 2:
                    settle(store, job, Suspended(NEVER, Awaited("paid", job.id.hex())))
                else:
                    store.flows.signal(sent("paid", job.id.hex()), NOW)

        side_by_side(8, work)
        assert {seen(store, job).state for job in jobs} == {State.READY}

    def test_bounds_of_an_address(self, store: Store) -> None:
        """It keeps the last 100 signals, and their numbers."""
        for number in range(MOST_KEPT + 3):
            store.flows.signal(sent("paid", "7", b"%d" % number), NOW)
        found = store.flows.signals(uuid7(), "paid", "7", 0)
        assert [(one.n, one.value) for one in found] == [(n + 1, b"%d" % n) for n in range(3, MOST_KEPT + 3)]

    def test_old_signals_go(self, store: Store) -> None:
        """By tending; their numbers are not given again."""
        for until in (NOW + 1, NOW + 2, NOW + 9):
            store.flows.signal(sent("paid", "7", until=until), NOW)
        while store.flows.tend(NOW + 2, 1):
            assert len(store.flows.signals(uuid7(), "paid", "7", 0)) < 3
        assert [one.n for one in store.flows.signals(uuid7(), "paid", "7", 0)] == [3]
        while store.flows.tend(NOW + 9, 1):
            pass
        assert store.flows.signals(uuid7(), "paid", "7", 0) == []
        store.flows.signal(sent("paid", "7"), NOW)
        assert [one.n for one in store.flows.signals(uuid7(), "paid", "7", 0)] == [4]

    def test_who_waits_is_listed(self, store: Store) -> None:
        """By name, key and job; no longer once a job has woken."""
        names = [("approve:refund", "2"), ("approve:refund", "1"), ("paid", "1")]
        jobs = [asleep(store, *name) for name in names]
        rows = [SignalWait(*name, job.id, job.epoch, 0) for name, job in zip(names, jobs, strict=True)]
        wanted = sorted(rows, key=lambda row: (row.name, row.key))
        assert store.flows.awaiting("", 10) == wanted
        assert store.flows.awaiting("approve:", 10) == wanted[:2]
        assert store.flows.awaiting("approve:", 1) == wanted[:1]
        for place in range(3):
            assert store.flows.awaiting("", 10, wanted[place]) == wanted[place + 1 :]
        assert store.flows.awaiting("approve:", 10, wanted[0]) == wanted[1:2]
        # One that was never there has its place, too.
        before = SignalWait("approve:refund", "2", b"\0" * 16, 0, 0)
        assert store.flows.awaiting("approve:", 10, before) == wanted[1:2]
        store.flows.signal(sent("paid", "1"), NOW)
        assert store.flows.awaiting("paid", 10) == []

    def test_many_are_listed_in_parts(self, store: Store) -> None:
        """Each of them once, by name, key and job, whatever the parts."""
        keys = [*map(str, range(12)), "", "a", "a!", "a b", "é", "键", "\U0001f600", "1"]
        for number, key in enumerate(keys):
            asleep(store, "approve:" + "x" * (number % 3), key)
        whole = store.flows.awaiting("approve:", 100)
        assert len(whole) == len(keys)
        for size in (1, 3, 7):
            found = store.flows.awaiting("approve:", size)
            while part := store.flows.awaiting("approve:", size, found[-1]):
                found += part
            assert found == whole

    @pytest.mark.parametrize("text", ["", "k" * 500, "clé/键:%_\\'\"*"])
    def test_any_text_is_an_address(self, store: Store, text: str) -> None:
        """No name and key is taken for another."""
        others = [("x" + text, "z"), ("x", text + "y"), (text, "x")]
        for address in others:
            store.flows.signal(sent(*address), NOW)
        job = asleep(store, "x", text)
        assert job.state is State.SCHEDULED
        assert store.flows.signal(sent("x", text, b"\x00\xff"), NOW) == 1
        assert [one.value for one in store.flows.signals(job.id, "x", text, 0)] == [b"\x00\xff"]


def sent(name: str, key: str, value: bytes = b"null", until: int = NOW + DAY) -> Signal:
    """A new signal."""
    return Signal(name, key, uuid7(), value, until)


def asleep(store: Store, name: str, key: str, after: int = 0, until: int = NEVER) -> Job:
    """A new job that sleeps until a signal comes to this address."""
    (job,) = running(store)
    return settle(store, job, Suspended(until, Awaited(name, key, after)))


def all_asleep(store: Store, count: int) -> list[Job]:
    """New jobs that sleep until a signal comes to one address."""
    jobs = running(store, count)
    changes = [lifecycle.after(job, Suspended(NEVER, Awaited("paid", "7")), DEFAULT, NOW) for job in jobs]
    assert store.apply(changes, NOW) == [True] * count
    return jobs
