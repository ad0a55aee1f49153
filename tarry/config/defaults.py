"""[defaults]: the settings of tasks that have none of their own."""

import json
from datetime import timedelta
from typing import Annotated, Any

from msgspec import Meta, Struct

from tarry.config.kinds import DURATION, FRACTION, FROM_0
from tarry.config.parser import Kind
from tarry.model import retry
from tarry.model.duration import microseconds
from tarry.model.retry import SHAPES, Retry


def _backoff(written: str | list[float | str]) -> str | tuple[int, ...]:
    # Only for its ValueError.
    Retry(1, written)
    return written if isinstance(written, str) else tuple(map(microseconds, written))


def _parse_list(text: str) -> Any:
    # Only a list is JSON: a formula such as `2n+1 minutes` is not.
    return json.loads(text) if text.startswith("[") else text


BACKOFF = Kind(
    '"exponential", "linear", "fixed", a formula such as "2n+1 minutes", or a list of delays such as ["1m", "5m"]',
    str | Annotated[list[int | float | str], Meta(min_length=1)],
    _backoff,
    _parse_list,
    names=SHAPES,
)


class DefaultRetry(Struct, frozen=True):
    """When a failed job is tried again: the arguments of `Retry`, with durations in microseconds."""

    max: Annotated[int | None, FROM_0] = retry.DEFAULT.limit
    """Attempts after the first; 0: none."""
    backoff: Annotated[str | tuple[int, ...], BACKOFF] = "exponential"
    base: Annotated[int, DURATION] = retry.DEFAULT.base
    most: Annotated[int, DURATION] = retry.DEFAULT.cap
    jitter: Annotated[float, FRACTION] = retry.DEFAULT.jitter

    @property
    def rule(self) -> Retry:
        """The rule that these settings make."""
        backoff = self.backoff if isinstance(self.backoff, str) else list(map(_time, self.backoff))
        return Retry(self.max, backoff, base=_time(self.base), cap=_time(self.most), jitter=self.jitter)


class Defaults(Struct, frozen=True):
    """[defaults]."""

    retry: DefaultRetry = DefaultRetry()


def _time(micros: int) -> timedelta:
    return timedelta(microseconds=micros)
