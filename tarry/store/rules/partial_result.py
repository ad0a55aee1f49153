"""Questions to several stores that are used as one, some of which may be away."""

from collections.abc import Callable
from typing import TypeVar

from tarry.errors import PartlyUnavailable

T = TypeVar("T")
M = TypeVar("M")


def partial_result(ask: Callable[[], T]) -> tuple[T, PartlyUnavailable | None]:
    """The answer; if only some of several stores answered, theirs and the error that says so."""
    try:
        return ask(), None
    except PartlyUnavailable as error:
        return error.answer, error


def reachable_part(ask: Callable[[], T]) -> T:
    """The answer of the stores that can be reached."""
    return partial_result(ask)[0]


def made_of(ask: Callable[[], T], make: Callable[[T], M]) -> M:
    """What `make` makes of the answer; of only a part of it: PartlyUnavailable with what it makes of that."""
    answer, error = partial_result(ask)
    made = make(answer)
    if error is not None:
        raise PartlyUnavailable(str(error), made, error.missing) from error
    return made
