"""How often the pump's thread asks the store, and when it listens for wake-ups. All in one thread, turned by hand."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from tarry.store.rules.sleeper import FULL, WORK, Wakeup
from tarry.worker.pump_loop import PumpLoop
from tests.worker.manual_pump import MakePump, ManualPump

TOPIC = WORK + "default"


class ScriptedWakeup(Wakeup):
    """Each sleep does the next thing of the script; then the loop ends."""

    def __init__(self, script: Sequence[Callable[[], bool]]) -> None:
        super().__init__()
        self.script = [*script]
        self.topic = ""

    def listen(self, topic: str) -> None:
        self.topic = topic

    def ignore(self) -> None:
        self.topic = ""

    def is_listening(self) -> bool:
        return bool(self.topic)

    def sleep(self, seconds: float, also: Sequence[int] = ()) -> bytes:
        # An event of the store ends the listening, the end of a job does not.
        if self.script.pop(0)():
            self.topic = ""
        return b""


class LoopedPump:
    """A worker that is finished after the last sleep of its script. Notes the calls of the store before each sleep."""

    def __init__(self, manual: ManualPump, *script: Callable[[], bool]) -> None:
        self.manual, self.calls = manual, list[Counter[str]]()
        self.topics: list[str] = []
        self.wakeup = ScriptedWakeup([self.noted(action) for action in script])
        manual.pump.wakeup.close()
        manual.pump.wakeup = self.wakeup
        PumpLoop(self, manual.pump, TOPIC, tuple).run()

    def noted(self, action: Callable[[], bool]) -> Callable[[], bool]:
        def note() -> bool:
            self.calls.append(self.manual.store.calls.copy())
            self.topics.append(self.wakeup.topic)
            self.manual.store.calls.clear()
            return action()

        return note

    def obey(self) -> None: ...

    def beat(self) -> None: ...

    def is_finished(self, seconds: float) -> bool:
        return not self.wakeup.script

    def sleep_seconds(self, seconds: float) -> float:
        return seconds


@pytest.fixture
def ends_soon(monkeypatch: pytest.MonkeyPatch) -> Callable[[ManualPump], None]:
    def end_while_expected(manual: ManualPump) -> None:
        monkeypatch.setattr(manual.pump.outcomes, "expect", lambda seconds: manual.sync.end_all())

    return end_while_expected


def nothing_comes() -> bool:
    return False


def job_comes(manual: ManualPump) -> Callable[[], bool]:
    return lambda: bool(manual.insert())


def job_ends(manual: ManualPump) -> Callable[[], bool]:
    def end() -> bool:
        manual.sync.end_all()
        return False

    return end


def test_a_short_job_takes_two_exchanges(make: MakePump, ends_soon: Callable[[ManualPump], None]) -> None:
    manual = make(threads=2)
    ends_soon(manual)
    # After the first one the queue is known.
    looped = LoopedPump(manual, job_comes(manual), job_comes(manual), nothing_comes)
    assert looped.calls[2] == {"exchange": 2, "queues": 1}
    assert looped.topics == [TOPIC] * 3
    assert manual.pump.held_count == 0


def test_a_long_job_is_settled_and_no_further_look_follows(make: MakePump) -> None:
    manual = make(threads=2)
    looped = LoopedPump(manual, job_comes(manual), job_ends(manual), nothing_comes)
    assert looped.calls[1]["exchange"] == 2, "the claim, and a look after it began to listen"
    assert looped.calls[2] == {"exchange": 1}, "it has listened all the time"
    assert looped.topics == [TOPIC] * 3


def test_where_all_slots_are_taken_it_waits_for_recalls_and_asks_nothing(make: MakePump) -> None:
    manual = make(threads=1, queues={"default": 1})
    looped = LoopedPump(manual, job_comes(manual), job_ends(manual), nothing_comes)
    assert looped.calls[1] == {"exchange": 1, "extend": 1}
    assert looped.topics == [TOPIC, FULL, TOPIC]
    assert manual.pump.held_count == 0


def test_a_job_of_a_new_queue_is_found_after_a_wake_up(make: MakePump) -> None:
    manual = make(threads=2)
    LoopedPump(manual, job_comes(manual), lambda: bool(manual.insert(queue="other")), nothing_comes)
    assert {running.job.queue for running in manual.sync.on} == {"default", "other"}
