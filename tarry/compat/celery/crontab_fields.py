"""The five fields of a crontab as Celery reads them: texts, numbers and lists become sets of numbers."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

from msgspec import Struct

from tarry.model.quantity import shorten

CrontabField = str | int | Iterable[int]
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MOST = 1000
"""Characters, or numbers, of a field."""


class ParseException(ValueError):
    """A field of a crontab that cannot be understood."""


class FieldRange(Struct, frozen=True):
    """What may stand in a field: numbers from `low` to `high`, and the names of those from `low` on."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def parse(self, given: Any) -> set[int]:
        """The numbers that a text, a number or a list of numbers stands for; ParseException, TypeError."""
        if isinstance(given, int):
            numbers = {given}
        elif isinstance(given, str):
            numbers = self._parse_text(given)
        elif isinstance(given, Iterable):
            numbers = self._take(given)
        else:
            raise TypeError(f"crontab({self.name}={given!r}): a number, a text or a list of numbers")
        if not numbers or not all(isinstance(one, int) and self.low <= one <= self.high for one in numbers):
            raise ParseException(f"crontab({self.name}={shorten(given)}): numbers from {self.low} to {self.high}")
        return numbers

    def _take(self, given: Iterable[int]) -> set[int]:
        # It may have no end.
        taken = list(islice(given, _MOST + 1))
        if len(taken) > _MOST:
            raise ParseException(f"crontab({self.name}={shorten(given)}): {_MOST} numbers at most")
        return set(taken)

    def _parse_text(self, text: str) -> set[int]:
        try:
            if len(text) > _MOST:
                raise ValueError
            return {number for part in text.split(",") for number in self._parse_part(part.strip())}
        except ValueError:
            named = f", or names ({', '.join(self.names)})" if self.names else ""
            raise ParseException(
                f"crontab({self.name}={shorten(text)}): numbers from {self.low} to {self.high}{named}, "
                'as "3", "1-5", "22-2", "*/15", "1-31/2", with commas between them'
            ) from None

    def _parse_part(self, part: str) -> list[int]:
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        if slash and not (dash or span == "*"):
            raise ValueError
        numbers = self._parse_span(first, last) if dash else self._parse_one(span)
        return numbers[:: _number(step)] if slash else numbers

    def _parse_one(self, word: str) -> list[int]:
        return list(range(self.low, self.high + 1)) if word == "*" else [self._parse_number(word)]

    def _parse_span(self, first: str, last: str) -> list[int]:
        start, end = self._parse_number(first), self._parse_number(last)
        if end >= start:
            return list(range(start, end + 1))
        # As Celery has it: "22-2" goes over midnight.
        return [*range(start, self.high + 1), *range(self.low, end + 1)]

    def _parse_number(self, word: str) -> int:
        name = word.strip().lower()[:3]
        found = self.names.index(name) + self.low if name in self.names else _number(word)
        if not self.low <= found <= self.high:
            raise ValueError
        return found

    def text(self, numbers: set[int]) -> str:
        """The numbers as a crontab has them: a step, or runs and single ones."""
        step = self._step(numbers)
        if step:
            return "*" if step == 1 else f"*/{step}"
        runs: list[list[int]] = []
        for number in sorted(numbers):
            if runs and number == runs[-1][-1] + 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        words = [[self.word(number) for number in run] for run in runs]
        return ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in words)

    def word(self, number: int) -> str:
        """The name of a number, or the number."""
        return self.names[number - self.low] if self.names else str(number)

    def _step(self, numbers: set[int]) -> int:
        """The step of three numbers or more that begin with the lowest; 0: they have none."""
        steps = range(1, (self.high - self.low) // 2 + 1)
        return next((step for step in steps if numbers == set(range(self.low, self.high + 1, step))), 0)

    def is_every(self, numbers: set[int]) -> bool:
        """Whether none is left out."""
        return len(numbers) == self.high - self.low + 1


def _number(word: str) -> int:
    if not (word.strip().isdecimal() and word.isascii()):
        raise ValueError
    return int(word)


MINUTE, HOUR = FieldRange("minute", 0, 59), FieldRange("hour", 0, 23)
DAY_OF_MONTH = FieldRange("day_of_month", 1, 31)
MONTH_OF_YEAR = FieldRange("month_of_year", 1, 12, _MONTHS)
DAY_OF_WEEK = FieldRange("day_of_week", 0, 6, _WEEKDAYS)
