"""Which change wakes whom: the rule by itself. That each store keeps to it is in the conformance suite."""

import pytest

from tarry.model.change import Change
from tarry.model.job import State
from tarry.model.wake import WakeReason, wake_reasons

WORK, RESULT, STEP = WakeReason.WORK, WakeReason.RESULT, WakeReason.STEP


@pytest.mark.parametrize(
    ("states", "makes_room", "reasons"),
    [
        ([State.READY], False, (WORK, STEP)),
        ([State.SCHEDULED], False, (WORK, STEP)),
        ([State.DONE], False, (RESULT,)),
        ([State.DEAD, State.CANCELLED], False, (RESULT,)),
        ([None], False, (RESULT,)),
        ([State.DONE], True, (WORK, RESULT)),
        ([State.DONE, State.READY], False, (WORK, RESULT)),
        ([], False, (STEP,)),
    ],
)
def test_reasons(states: list[State | None], makes_room: bool, reasons: tuple[WakeReason, ...]) -> None:
    changes = [Change(b"", State.RUNNING, 1, state) for state in states]
    assert wake_reasons(changes, makes_room) == reasons


def test_the_letters_are_those_that_other_versions_use() -> None:
    """Processes of several versions hear each other."""
    assert "".join(WakeReason) == "wrfc"
