"""Who is told of what a client does, once the store has it and before the caller knows."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from tarry.errors import PartlyUnavailable
from tarry.model.change import Change
from tarry.model.job import Job, State

Event = Literal["accepted", "changed", "cancelled", "deleted", "retried"]


class Witness(Protocol):
    """Must be quick, and must not raise."""

    def accepted(self, jobs: Sequence[Job], changed: bool = False) -> None:
        """These jobs are stored. changed: they were there, and an enqueue put something else into them."""

    def done_by_hand(self, jobs: Sequence[Job], what: Event) -> None:
        """These were `cancelled`, `deleted` or `retried`."""


def inserted(insert: Callable[[Sequence[Job]], list[bytes]], witness: Witness, jobs: Sequence[Job]) -> list[bytes]:
    """What `insert` answers, or raises."""
    try:
        lives = insert(jobs)
    except PartlyUnavailable as error:
        there = zip(range(len(jobs)), jobs, error.answer, strict=True)
        witness.accepted([job for at, job, id in there if at not in error.missing and id == job.id])
        raise
    witness.accepted([job for job, id in zip(jobs, lives, strict=True) if id == job.id])
    return lives


def what(change: Change) -> Event:
    """That somebody did by it."""
    if change.to is None:
        return "deleted"
    return "cancelled" if change.to is State.CANCELLED else "retried"
