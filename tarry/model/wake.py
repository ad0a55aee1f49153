"""What wakes whom. Each event in a store is a reason to wake; a sleeper listens for some reasons.

- a job is inserted, a queue is resumed, a limit changes or its levels are counted anew: WORK
- a job is claimed, or reports progress: STEP
- a job changes: `wake_reasons`
- a running job may have been cancelled: RECALL
"""

from collections.abc import Iterable
from enum import StrEnum

from tarry.model.change import Change
from tarry.model.job import State


class WakeReason(StrEnum):
    """Why a sleeper is woken."""

    # Never change the values: they are part of the names of channels in Redis and PostgreSQL, which processes of
    # several versions share.

    WORK = "w"
    """A job waits, or a waiting job may start. One worker of each kind is enough."""
    RESULT = "r"
    """A job has finished, or is deleted. It is a step too: a follower of jobs listens for both."""
    STEP = "f"
    """A job has changed in any other way."""
    RECALL = "c"
    """Workers must look whether their jobs are still wanted."""


_WAITING = frozenset({State.READY, State.SCHEDULED})
# Made once: every batch of changes looks this up.
_REASONS = {
    (work, ended): ((WakeReason.WORK,) if work else ()) + (WakeReason.RESULT if ended else WakeReason.STEP,)
    for work in (False, True)
    for ended in (False, True)
}


def wake_reasons(changes: Iterable[Change], makes_room: bool) -> tuple[WakeReason, ...]:
    """The reasons to wake after these changes. makes_room: under a limit, more jobs may start than before."""
    states = {change.to for change in changes}
    ended = not states <= _WAITING
    return _REASONS[makes_room or not states.isdisjoint(_WAITING), ended]
