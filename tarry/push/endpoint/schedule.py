"""When an endpoint is called again: after which delays, how often, until when.

    "2n+1 minutes"                                                    after 1, 3, 5, 7, ... minutes
    ["1m", "3m", "5m", "7m"]                                          as listed, then no more
    "10m"                                                             every ten minutes
    { exponential = "10s", factor = 2, max = "1h", jitter = 0.1 }     10 s, 20 s, ... 1 h, each up to 10% longer

All but a list have at most 10 attempts, the first included, unless `max_attempts` or `until` says otherwise. If there
are more attempts than delays in a list, the last delay repeats. No delay of a formula is longer than a day.
"""

import difflib
import math
from datetime import timedelta
from typing import Any

from msgspec import Struct

from tarry.model.duration import DAY, microseconds
from tarry.model.quantity import shorten
from tarry.model.retry import Retry

DEFAULT = "2n+1 minutes"
MOST_ATTEMPTS = 10
"""The default of `max_attempts`."""
FOREVER = "forever"
MOST_DELAYS = 1000
"""Delays in a list."""

_EXPECTED = (
    'write "2n+1 minutes", a list such as ["1m", "3m"], "10m" for every ten minutes,'
    ' or { exponential = "10s", factor = 2, max = "1h", jitter = 0.1 }'
)
_NAMES = ("exponential", "factor", "max", "jitter")
# A factor close to 1 would make `_exponential` list far too many delays.
_LEAST_FACTOR, _MOST_FACTOR = 1.1, 100


class RetrySchedule(Struct, frozen=True, eq=False):
    """A schedule of attempts. `retry` is the retry rule of the job."""

    retry: Retry
    until: int | None = None
    """Microseconds after the first due time at which attempts end; None: no limit."""

    @property
    def attempts(self) -> int | None:
        """The most attempts; None: no limit."""
        return None if self.retry.limit is None else self.retry.limit + 1

    def delay(self, failures: int, seed: bytes = b"", age: int = 0, asked: int | None = None) -> int | None:
        """Microseconds until the next attempt after so many failures; None: there is none.

        seed: the job's id, from which jitter is drawn. age: microseconds since the first attempt was due. asked: the
        delay that the endpoint asked for; it can make the attempt later, not earlier.
        """
        planned = self.retry.delay(failures, (), seed)
        if planned is None:
            return None
        later = planned if asked is None else max(planned, asked)
        return None if self.until is not None and age + later > self.until else later

    @classmethod
    def parse(cls, written: Any = None, max_attempts: Any = None, until: Any = None) -> "RetrySchedule":
        """The schedule of these values from TOML or JSON; None: not set. ValueError if one is wrong."""
        ends = None if until is None else _positive(until)
        delays, jitter = _delays(DEFAULT if written is None else written)
        listed = isinstance(written, list)
        # With `until` the time ends the attempts, not their number.
        many = None if ends is not None else len(delays) if listed else MOST_ATTEMPTS - 1
        # A delay of a list may be longer than a day.
        cap = DAY if isinstance(delays, str) else max(delays)
        spaced = delays if isinstance(delays, str) else [timedelta(microseconds=delay) for delay in delays]
        limit = _limit(max_attempts, many)
        return cls(Retry(limit, spaced, cap=timedelta(microseconds=cap), jitter=jitter), ends)


def _limit(max_attempts: Any, otherwise: int | None) -> int | None:
    """The number of retries; None: no limit."""
    if max_attempts is None:
        return otherwise
    if max_attempts == FOREVER:
        return None
    if type(max_attempts) is not int or not 1 <= max_attempts < 2**31:
        raise ValueError(
            f'{shorten(max_attempts)} is no number of attempts; write a whole number from 1, or "{FOREVER}"'
        )
    return max_attempts - 1


def _delays(written: Any) -> tuple[str | list[int], float]:
    """A formula, or delays in microseconds, the last of which repeats; and the jitter."""
    match written:
        case dict():
            return _exponential(written)
        case list() if 0 < len(written) <= MOST_DELAYS:
            return [_duration(delay, f"delay {number}: ") for number, delay in enumerate(written, 1)], 0.0
        case str() if "n" in written:
            return _formula(written), 0.0
        case str() | int() | float():
            return [_positive(written)], 0.0
    if isinstance(written, list):
        raise ValueError(f"a list of {len(written)} delays; write from 1 to {MOST_DELAYS}")
    raise ValueError(f"no schedule; {_EXPECTED}")


def _formula(text: str) -> str:
    try:
        Retry(1, text)
    except ValueError:
        raise ValueError(f"{shorten(text)} is no schedule; {_EXPECTED}") from None
    if text in ("linear", "exponential"):
        raise ValueError(f"{shorten(text)} says no delay; {_EXPECTED}")
    return text


def _exponential(written: dict[Any, Any]) -> tuple[list[int], float]:
    for name in written:
        if name not in _NAMES:
            near = difflib.get_close_matches(str(name), _NAMES, 1)
            raise ValueError(f"unknown {shorten(name)}; " + (f"did you mean {near[0]}?" if near else _EXPECTED))
    if "exponential" not in written:
        raise ValueError(f'exponential is missing; write the first delay, as in exponential = "10s" ({_EXPECTED})')
    first, most = _positive(written["exponential"], "exponential: "), _positive(written.get("max", "1d"), "max: ")
    if most < first:
        raise ValueError("max is less than the first delay; write a longer one")
    factor = _fraction(written.get("factor", 2), "factor", _LEAST_FACTOR, _MOST_FACTOR)
    # As many delays as it takes to reach the longest one, which then repeats.
    steps = math.ceil(math.log(most / first, factor)) if most > first else 0
    return [min(round(first * factor**step), most) for step in range(steps + 1)], _fraction(
        written.get("jitter", 0), "jitter", 0, 1
    )


def _fraction(written: Any, name: str, least: float, most: float) -> float:
    if isinstance(written, bool) or not isinstance(written, int | float) or not least <= written <= most:
        raise ValueError(f"{name}={shorten(written)}; write a number from {least} to {most}")
    return float(written)


def _positive(written: Any, where: str = "") -> int:
    found = _duration(written, where)
    if not found:
        raise ValueError(f'{where}0 is no time; write a duration such as "10m"')
    return found


def _duration(written: Any, where: str) -> int:
    try:
        return microseconds(written)
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None
