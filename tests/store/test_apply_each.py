"""Changes over which a store fails keep back no others, and do not fill the log."""

import time
from collections.abc import Sequence

import pytest

from tarry.client.clock import FakeClock
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tarry.store.shared.apply_each import apply_each
from tarry.store.shared.backoff import SAY_AGAIN


class Spoiled(MemoryStore):
    """Fails over the changes of these jobs."""

    bad: frozenset[bytes] = frozenset()

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        if any(change.id in self.bad for change in changes):
            raise ValueError("a record")
        return super().apply(changes, now)


def test_a_job_that_fails_again_and_again_is_logged_once_a_minute(
    clock: FakeClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Spoiled(clock.now)
    jobs = [Job(ids.uuid7(), "pay", b"[]", due=clock.now(), state_since=clock.now()) for _ in range(3)]
    store.insert(jobs)
    store.bad = frozenset(job.id for job in jobs[1:])
    for number in range(20):
        changes = [lifecycle.move(job, clock.now(), priority=number) for job in jobs]
        assert apply_each(store, changes, clock.now()) == [True, False, False]
    assert caplog.text.count("cannot be stored: a record") == 2
    later = time.monotonic() + SAY_AGAIN
    monkeypatch.setattr("tarry.store.shared.apply_each.time.monotonic", lambda: later)
    apply_each(store, changes, clock.now())
    assert caplog.text.count("cannot be stored: a record") == 4
    assert [job.state for job in store.get([job.id for job in jobs]) if job] == [State.READY] * 3
