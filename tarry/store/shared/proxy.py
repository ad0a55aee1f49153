"""What stands in for another object, and passes on all that it does not do itself."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from tarry.errors import PartlyUnavailable

T = TypeVar("T")


class Proxy:
    """Passes as the inner object, also for `isinstance`: it is one, in all but a few methods."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # The inner one may be a proxy, too.
        return cast("type", self._inner.__class__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def open_answer(read: Callable[[], T], unseal: Callable[[T], T]) -> T:
    """What a store answers, opened; also where it answers in part, as several stores do of which some are away."""
    try:
        answer = read()
    except PartlyUnavailable as error:
        error.answer = unseal(error.answer)
        raise
    return unseal(answer)
