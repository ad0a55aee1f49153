"""A store that goes away amid a call: which errors the call may raise then."""

from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
from msgspec.structs import replace

from tarry.errors import StoreError, StoreUnavailable
from tarry.model import lifecycle
from tarry.model.bound import Bound
from tarry.model.duration import DAY
from tarry.model.flow.signal import Awaited, Signal
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import KeyLimit, Limit
from tarry.model.moving import NEVER
from tarry.model.outcome import Returned, Suspended
from tarry.store.conformance.cases.flows import flow_of
from tarry.store.conformance.cases.jobs import (
    EVERYTHING,
    LEASE,
    NOW,
    PLENTY,
    Promises,
    ids,
    made,
    put,
    running,
    settle,
    taken,
)
from tarry.store.rules.base import Query, Store
from tarry.store.rules.ids import uuid7
from tarry.store.shared.uncertain import NOT_DONE

# No call of one verb needs so many.
_MOST_REPLIES = 50
_REQUESTS = [*range(1, 10), *range(10, 70, 5)]

LosingCall = Callable[[Store], object]
"""Calls a verb with arguments that were not used before."""


class LossyLine(Protocol):
    """A second way to the store, on which replies can be lost."""

    store: Store

    def lose(self, number: int) -> None:
        """From now on, the `number`th reply, from 1, is lost although its request is done; after it the store is
        away."""

    def end_after(self, number: int) -> None:
        """From now on, so many requests are answered; all that come after them find the store away."""

    def restore(self) -> bool:
        """Lets everything work again; returns whether a reply was lost or a request refused."""


def _insert(store: Store, number: int) -> LosingCall:
    jobs = made(store, 2)
    return lambda line: line.insert(jobs)


def _insert_keyed(store: Store, number: int) -> LosingCall:
    (job,) = put(store, key=f"one {number}")
    (twin,) = made(store, key=f"one {number}")
    others = made(store, key=f"two {number}")
    return lambda line: line.insert([job, twin, *others])


def _insert_bounded(store: Store, number: int) -> LosingCall:
    jobs = made(store, 2)
    return lambda line: line.insert_bounded(jobs, {jobs[0].queue: Bound(10_000)}, NOW)


def _insert_flow(store: Store, number: int) -> LosingCall:
    new = flow_of(store, [[], [1]])
    return lambda line: line.flows.insert(new, NOW)


def _signal(store: Store, number: int) -> LosingCall:
    signal, (job,) = Signal("paid", str(number), uuid7(), b"1", until=NOW + DAY), running(store)
    settle(store, job, Suspended(NEVER, Awaited("paid", str(number))))
    return lambda line: line.flows.signal(signal, NOW)


def _exchange_in_lanes(store: Store, number: int) -> LosingCall:
    """Ends attempts and claims jobs that wait in lanes."""
    store.limit("each:laned", Limit(most=1))
    jobs = running(store, 2)
    put(store, task="laned", lane=f"lane {number}")
    changes = [lifecycle.after(job, Returned(b"1"), DEFAULT, NOW) for job in jobs]
    return lambda line: line.exchange(changes, EVERYTHING, 10, "bob", LEASE, NOW)


def _apply(store: Store, number: int) -> LosingCall:
    jobs = running(store, 3)
    changes = [lifecycle.after(job, Returned(b"1"), DEFAULT, NOW) for job in jobs]
    return lambda line: line.apply(changes, NOW)


def _claim(store: Store, number: int) -> LosingCall:
    put(store, 3)
    return lambda line: line.claim(EVERYTHING, 10, "bob", LEASE, NOW)


def _mark(store: Store, number: int) -> LosingCall:
    (job,) = running(store)
    return lambda line: line.save_progress("ann", [(job.id, job.epoch, b"half")])


def _prune(store: Store, number: int) -> LosingCall:
    jobs = running(store, 2)
    store.apply([replace(lifecycle.after(job, Returned(), DEFAULT, NOW), keep_until=NOW + 1) for job in jobs], NOW)
    return lambda line: line.prune(NOW + 2, PLENTY)


def _limit(store: Store, number: int) -> LosingCall:
    put(store, 2, task=f"task {number}")
    return lambda line: line.limit(f"each:task {number}", Limit(most=1))


def _limit_key(store: Store, number: int) -> LosingCall:
    put(store, 2, task=f"task {number}")
    return lambda line: line.limit_key(f"task {number}", "ann", KeyLimit(1))


def _pause(store: Store, number: int) -> LosingCall:
    return lambda line: line.pause(f"queue {number}", True)


def _write(store: Store, number: int) -> LosingCall:
    return lambda line: line.kv_cas(f"cell {number}", b"new", None)


VERBS = {
    "insert": _insert, "insert of keys": _insert_keyed, "apply": _apply, "claim": _claim, "mark": _mark,
    "prune": _prune, "limit": _limit, "key": _limit_key, "pause": _pause, "write": _write,
}  # fmt: skip


ONE_COMMIT = {
    **{name: VERBS[name] for name in ("insert", "insert of keys", "apply", "claim", "mark", "pause", "write")},
    "bounded insert": _insert_bounded, "flow": _insert_flow, "signal": _signal, "exchange in lanes": _exchange_in_lanes,
}  # fmt: skip
"""Verbs that are done by one commit."""


def state(store: Store) -> object:
    """Everything that the verbs change."""
    limits = {name: limit for name, (limit, _) in store.limits().items()}
    return (
        store.find(Query(limit=100)),
        store.kv_list(""),
        limits,
        {q for q, paused in store.queues().items() if paused},
    )


class Losing(Promises):
    def line(self, store: Store) -> Iterator[LossyLine]:
        """Yields a second connection to the same store; nothing if the store has no replies that could be lost."""
        return iter(())

    @pytest.mark.parametrize("verb", VERBS)
    def test_what_may_have_been_done_is_not_called_undone(self, store: Store, verb: str) -> None:
        """Whichever reply is lost before the store is away: if the error says that nothing was done (StoreAway,
        StoreFull, StoreReadOnly), then nothing was done."""
        for line in self.line(store):
            for number in range(1, _MOST_REPLIES):
                call = VERBS[verb](store, number)
                before = state(store)
                line.lose(number)
                error = _error(call, line.store)
                lost = line.restore()
                if isinstance(error, NOT_DONE):
                    assert state(store) == before, f"reply {number} lost: {error!r}, and yet it was done"
                if not lost:
                    return
            raise AssertionError(f"{verb}: more than {_MOST_REPLIES} replies")

    @pytest.mark.parametrize("verb", ONE_COMMIT)
    def test_what_is_done_is_answered(self, store: Store, verb: str) -> None:
        """Wherever between two requests the store goes away: a call that raises has done nothing, so no request after
        its commit makes it raise."""
        for line in self.line(store):
            for number in _REQUESTS:
                taken(store)
                call = ONE_COMMIT[verb](store, number)
                before = state(store)
                line.end_after(number)
                error = _error(call, line.store)
                refused = line.restore()
                assert (error is None) == (state(store) != before), f"away after {number} requests: {error!r}"
                if not refused:
                    return
            raise AssertionError(f"{verb}: more than {_REQUESTS[-1]} requests")

    def test_an_insert_whose_reply_was_lost_is_sent_again_and_is_one_job(self, store: Store) -> None:
        """Under the same id, whether the first insert was done or not."""
        for line in self.line(store):
            for number in range(1, _MOST_REPLIES):
                (job,) = made(store)
                line.lose(number)
                _error(lambda store, job=job: store.insert([job]), line.store)  # type: ignore[misc]
                lost = line.restore()
                assert _again(line.store, job) == [job.id]
                if not lost:
                    break
            assert len(set(ids(store.find(Query(limit=100))))) == number


def _error(call: LosingCall, store: Store) -> StoreError | None:
    try:
        call(store)
    except StoreError as error:
        return error
    return None


def _again(store: Store, job: Job) -> list[bytes]:
    for _ in range(_MOST_REPLIES):
        try:
            return store.insert([job])
        except StoreUnavailable:
            continue
    return store.insert([job])
