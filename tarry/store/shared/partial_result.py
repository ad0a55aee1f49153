"""Questions to several stores that are used as one, some of which may be away."""

from collections.abc import Callable
from typing import TypeVar

from tarry.errors import PartlyUnavailable

Answer = TypeVar("Answer")


def partial_result(ask: Callable[[], Answer]) -> tuple[Answer, PartlyUnavailable | None]:
    """The answer; if only some of several stores answered, theirs and the error that says so."""
    try:
        return ask(), None
    except PartlyUnavailable as error:
        return error.answer, error


def reachable_part(ask: Callable[[], Answer]) -> Answer:
    """The answer of the stores that can be reached."""
    return partial_result(ask)[0]
