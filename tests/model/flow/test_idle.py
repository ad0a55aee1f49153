"""Jobs that are called again and again and come no further: how often, whatever brings them back."""

from collections.abc import Callable

import pytest
from msgspec import Raw, json
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import DAY, SECOND
from tarry.model.flow.signal import Awaited
from tarry.model.job import Job, State
from tarry.model.moving import NEVER
from tarry.model.outcome import Lost, Outcome, Raised, Released, Snoozed
from tarry.model.retry import Retry
from tarry.model.slept import FREE_CALLS, LONGEST_PAUSE, idle_calls
from tarry.tasks.step_log import KeptStep, StepLog
from tests.lifecycle_page import NOW, job_in

RULES = lifecycle.Rules(Retry(1000, backoff="fixed", base=0, jitter=0))
LOOKS = 60
"""In five seconds; such jobs were called thousands of times."""
Attempted = Callable[[Job, int], tuple[bytes, Outcome]]
"""What an attempt leaves as the progress of its job, and how it ends."""


def waits(job: Job, now: int, done: int = 0) -> tuple[bytes, Outcome]:
    """An attempt of a durable task that waits for a signal and finds none. done: how many it took before, the last of
    them in this attempt."""
    log = StepLog("order", job.progress, now)
    if done:
        log.keep(done - 1, KeptStep("wait_for paid", Raw(b"2")))
    log.begin_sleep(now, NEVER)
    log.keep(done, KeptStep("wait_for paid", Raw(b"1"), waits=True))
    progress = json.encode((None, "", 0, 0, None, Raw(log.encode()), log.slept))
    return progress, log.suspend(NEVER, Awaited("paid", "")).outcome


BACK: dict[str, Attempted] = {
    "waits": waits,
    "released": lambda job, now: (b"", Released(has_started=True)),
    "snoozed": lambda job, now: (b"", Snoozed(0)),
    "lease lost": lambda job, now: (b"", Lost()),
}


class Called:
    """A job that is called again at once after each change, as by a store that wakes it without end."""

    def __init__(self, back: Attempted) -> None:
        self.job, self.now, self._calls, self._back = job_in(State.RUNNING), NOW, 0, back

    def run(self, seconds: int, took: int = SECOND // 500) -> int:
        """How often it is called in so long. took: microseconds of a call, and of the time until the next one."""
        end, before = self.now + seconds * SECOND, self._calls
        while self.now < end:
            self._call(took)
        return self._calls - before

    def _call(self, took: int) -> None:
        self._calls += 1
        job = replace(self.job, state=State.RUNNING, epoch=self._calls, state_since=self.now)
        progress, outcome = self._back(job, self.now)
        change = lifecycle.after(job, outcome, RULES, self.now + took)
        self.job = replace(change.apply_to(job), progress=progress)
        self.now += 2 * took
        if self.job.state is State.SCHEDULED and change.awaits is None:
            self.now = max(self.now, self.job.due)


@pytest.mark.parametrize("back", BACK)
def test_what_comes_no_further_pauses(back: str) -> None:
    called = Called(BACK[back])
    assert FREE_CALLS < called.run(5) < LOOKS
    assert idle_calls(called.job) >= FREE_CALLS
    assert called.job.due - called.now <= LONGEST_PAUSE
    # From then on once a second.
    assert called.run(20) <= 21


@pytest.mark.parametrize("back", BACK)
def test_what_takes_its_time_does_not_pause(back: str) -> None:
    """A job that works for a while in each attempt, or is woken now and then."""
    called = Called(BACK[back])
    called.run(1000, took=3 * SECOND)
    assert idle_calls(called.job) == 0


def test_a_step_that_is_done_begins_anew() -> None:
    """A task that takes one signal after the other is called for each of them at once."""
    job = job_in(State.RUNNING)
    for done in range(5 * FREE_CALLS):
        progress, outcome = waits(job, NOW, done)
        assert lifecycle.after(job, outcome, RULES, NOW).due == NEVER
        job = replace(job, progress=progress)
    assert idle_calls(job) == 0


def test_a_failure_is_told_apart() -> None:
    """Its own rule says when it is tried again."""
    called = Called(lambda job, now: (b"", Raised(b"{}")))
    called.run(1)
    assert idle_calls(called.job) == 0


def test_a_longer_delay_stays_as_it_is() -> None:
    called = Called(BACK["snoozed"])
    called.run(5)
    job = replace(called.job, state=State.RUNNING)
    assert lifecycle.after(job, Snoozed(DAY), RULES, NOW).due == NOW + DAY
