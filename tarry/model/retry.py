"""When a failed attempt is followed by another: limits, delays, jitter, and which errors count."""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Literal

from tarry.model.duration import MINUTE, SECOND, Duration, microseconds
from tarry.model.quantity import MAX_SHORT
from tarry.model.verdict import RetryAfter

# Numbers of nine digits at most: longer ones would cost time, or overflow, at each failure of a job.
_FORMULA = re.compile(r"([0-9]{0,9})n\s*(?:\+\s*([0-9]{1,9}))?\s*(s|seconds?|m|minutes?|h|hours?)")
_UNIT = {"s": SECOND, "m": MINUTE, "h": 60 * MINUTE}
SHAPES = ("fixed", "linear", "exponential")
MOST_RETRIES = 1_000_000
"""The highest limit of a rule."""
MOST_FAILURES = 2**31 - 1
"""What the number of failures of a job ends at, in every store."""


def bounded_count(count: object) -> int:
    """A number of failures as a store can keep it; 0 for what is no number."""
    return min(max(count, 0), MOST_FAILURES) if isinstance(count, int) else 0


def one_more(count: int) -> int:
    """The number of failures after one more."""
    return bounded_count(count + 1)


Kinds = Iterable[type[BaseException] | str]


# Stands for a limit that was not given: as many as the list has delays, or three. None means no limit.
_BY_SHAPE = -(2**63)


class Retry:
    """How often and when to try again.

    Retry(5)                                              five more attempts, 1 s apart
    Retry(5, backoff="exponential", base=2.0, jitter=0.1) after 2, 4, 8, 16, 32 s, each up to 10% longer
    Retry(3, backoff="linear", base=10)                   after 10, 20, 30 s
    Retry(backoff=["1m", "3m", "5m"])                     as listed, then dead; with a higher limit the last repeats
    Retry(9, backoff="2n+1 minutes")                      after 1, 3, 5, ... 17 minutes
    Retry(5, only=(ConnectionError,), never=(KeyError,))  by the error's class or a base of it
    Retry(3, per={TimeoutError: Retry(10, base=30)})      another rule for that error
    Retry(None)                                           for ever

    limit: attempts after the first, a million at most; None, no limit. base: seconds (or "1m", or a timedelta). cap:
    no delay is longer, but for its jitter. jitter: a fraction from 0 to 1; the delay is drawn between itself and that
    much longer.
    within: no retry starts later than this after the job was made.
    """

    __slots__ = ("_delays", "backoff", "base", "cap", "jitter", "limit", "never", "only", "per", "within")

    def __init__(
        self,
        limit: int | None = _BY_SHAPE,
        backoff: str | Sequence[Duration] = "fixed",
        *,
        base: Duration = 1.0,
        cap: Duration = "1d",
        jitter: float = 0.0,
        only: Kinds = (),
        never: Kinds = (),
        per: Mapping[type[BaseException] | str, "Retry"] | None = None,
        within: Duration | None = None,
    ) -> None:
        self.backoff = backoff if isinstance(backoff, str) else tuple(backoff)
        self.base, self.cap, self.jitter = microseconds(base), microseconds(cap), jitter
        self.limit = self._checked_limit(limit)
        self.only, self.never = frozenset(map(_name, only)), frozenset(map(_name, never))
        self.per = {_name(kind): rule for kind, rule in (per or {}).items()}
        self.within = None if within is None else microseconds(within)
        if not 0 <= jitter <= 1:
            raise ValueError(f"jitter={jitter}: a fraction from 0 to 1")
        self._delays = self._compile_delays()

    def _checked_limit(self, limit: int | None) -> int | None:
        if limit == _BY_SHAPE:
            return 3 if isinstance(self.backoff, str) else len(self.backoff)
        if limit is not None and (not isinstance(limit, int) or not 0 <= limit <= MOST_RETRIES):
            raise ValueError(f"limit={_short(limit)}: 0 to {MOST_RETRIES:,}, or None for no limit")
        return limit

    def _compile_delays(self) -> tuple[int, ...] | None:
        """A list of delays in microseconds, or None for the shapes that are computed."""
        if not isinstance(self.backoff, str):
            if not self.backoff:
                raise ValueError("backoff=[]: list at least one delay, or write Retry(0)")
            return tuple(microseconds(delay) for delay in self.backoff)
        if self.backoff not in SHAPES and _match_formula(self.backoff) is None:
            raise ValueError(
                f'backoff="{self.backoff[:MAX_SHORT]}": one of {", ".join(SHAPES)}, a list of delays, or "2n+1 minutes"'
            )
        return None

    def delay(
        self,
        failures: int,
        kinds: Sequence[str] = (),
        seed: bytes = b"",
        age: int = 0,
        asked: int | None = None,
    ) -> int | None:
        """Microseconds until the next attempt after that many failures (1 or more); None: no other attempt.

        kinds: names of the error's class and its bases, nearest first. seed: what the jitter is drawn from, so that
        the same failure of the same job always gets the same delay. age: how long ago the job was made.
        asked: the delay that the task asks for; it overrides shape, cap, `only` and `never`, but not the limit.
        """
        for kind in kinds:
            if kind in self.per:
                # Without kinds: the rule for an error decides alone, so its own `per`, `only` and `never` do not count.
                return self.per[kind].delay(failures, (), seed, age, asked)
        if self.limit is not None and failures > self.limit:
            return None
        if asked is None and not self._is_wanted(kinds):
            return None
        # What a store has may be any number.
        delay = self._draw(min(max(failures, 1), MOST_FAILURES), seed) if asked is None else asked
        return None if self.within is not None and age + delay > self.within else delay

    @property
    def attempts(self) -> int | None:
        """How many attempts a job has at most, whatever its errors; None: no limit."""
        limits = [self.limit, *(rule.limit for rule in self.per.values())]
        known = [limit for limit in limits if limit is not None]
        return max(known) + 1 if len(known) == len(limits) else None

    def _is_wanted(self, kinds: Sequence[str]) -> bool:
        if self.never and not self.never.isdisjoint(kinds):
            return False
        return not self.only or not self.only.isdisjoint(kinds)

    def _draw(self, failures: int, seed: bytes) -> int:
        delay = min(self._plain(failures), self.cap)
        # Jitter comes after the cap: otherwise all delays at the cap would end at the same moment.
        return delay + int(delay * self.jitter * _fraction(seed, failures))

    def _plain(self, failures: int) -> int:
        match self.backoff:
            case "fixed":
                return self.base
            case "linear":
                return self.base * failures
            case "exponential":
                # Bounded, or the number would grow without end; beyond this the cap decides anyway.
                return self.base << min(failures - 1, 62)
            case str(formula):
                return _formula(formula, failures - 1)
        assert self._delays is not None
        return self._delays[min(failures, len(self._delays)) - 1]

    @staticmethod
    def after(delay: Duration) -> RetryAfter:
        """For a task to raise or return: it failed; try again after this delay (the limit still holds)."""
        return RetryAfter(delay)

    def __repr__(self) -> str:
        return f"Retry({self.limit}, backoff={self.backoff!r}, base={self.base / SECOND:g}, jitter={self.jitter:g})"


def _match_formula(text: str) -> re.Match[str] | None:
    return _FORMULA.fullmatch(text.strip()) if len(text) <= MAX_SHORT else None


def _formula(text: str, n: int) -> int:
    found = _match_formula(text)
    assert found is not None
    factor, constant, unit = found.groups()
    return (int(factor or 1) * n + int(constant or 0)) * _UNIT[unit[0]]


def _short(value: object) -> str:
    # The text of a number of more than 4,300 digits is an error of its own.
    return "a huge number" if isinstance(value, int) and value.bit_length() > 64 else repr(value)[:100]


def _fraction(seed: bytes, failures: int) -> float:
    """A number in [0, 1) that depends only on the arguments."""
    # The model has no random numbers: the same failure always gets the same delay.
    digest = blake2b(seed + failures.to_bytes(8, "big"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _name(kind: type[BaseException] | str) -> str:
    return kind if isinstance(kind, str) else qualified_name(kind)


def qualified_name(kind: type[BaseException]) -> str:
    """`ValueError`, or `shop.errors.OutOfStock`: how an error's class is named in rules and notes."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


NEVER = Retry(0)

# A job must outlive a night's outage: the last attempt starts 14.5 to 16 hours after the first.
DEFAULT = Retry(12, backoff="exponential", base=15.0, cap="6h", jitter=0.1)
"""The rule where neither the task nor the app has one."""

RetryRule = Retry | int | Literal["default"] | None
"""How a rule is written: an int is `Retry` of that many, None is no second attempt, "default" is the rule of the task,
else of the app."""


def retry_rule(written: RetryRule) -> Retry | None:
    """The rule that is written so; None for "default". TypeError."""
    # A bool is an int, but True is no number of attempts.
    if isinstance(written, bool) or not isinstance(written, Retry | int | str | None):
        raise TypeError(f"retry={written!r}: how many times to try again, a Retry, or None for never")
    if isinstance(written, str):
        if written != "default":
            raise TypeError(f'retry={written!r}: how many times to try again, a Retry, None for never, or "default"')
        return None
    return NEVER if written is None else Retry(written) if isinstance(written, int) else written
