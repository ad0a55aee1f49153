"""Questions to several stores that are used as one, some of which may be away."""

from collections.abc import Callable
from typing import TypeVar

from tarry.errors import PartlyUnavailable

Answer = TypeVar("Answer")


def partly(ask: Callable[[], Answer]) -> tuple[Answer, PartlyUnavailable | None]:
    """The answer, also if only some of several stores gave theirs; then with the error that says so."""
    try:
        return ask(), None
    except PartlyUnavailable as error:
        return error.answer, error


def there(ask: Callable[[], Answer]) -> Answer:
    """The answer of those of several stores that are there."""
    return partly(ask)[0]
