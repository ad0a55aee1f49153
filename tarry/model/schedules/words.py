"""When a schedule ticks, in words: "at 07:00 on weekdays, Paris time"."""

import re
from collections.abc import Iterator, Mapping

from tarry.model.schedules.phrases import SENTENCES, ZONES
from tarry.model.schedules.timetable import NAMED, ONCE

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MOST_TIMES = 4
_NUMBERS = re.compile(r"\d{1,2}(,\d{1,2})*")

Phrase = tuple[str, Mapping[str, str]]
"""The name of a sentence, and its values."""


def parts(expression: str, zone: str) -> list[Phrase]:
    """The parts, in their order; that of the zone is the last one, if it has any effect."""
    name, _, rest = expression.partition(" ")
    if name == "@every":
        return [("every", {"time": rest})]
    if name == ONCE:
        return [("once", {"time": rest.replace("T", " ").replace("+00:00", " UTC")})]
    fields = NAMED.get(expression, expression).split()
    known = _of_fields(fields) if len(fields) in (5, 6) else None
    city = zone.rpartition("/")[2].replace("_", " ")
    where: Phrase = ("utc", {}) if zone == "UTC" else ("zone", {"city": city})
    return [*(known or [("cron", {"cron": expression})]), where]


def describe(expression: str, zone: str) -> str:
    """All of it in English."""
    found = parts(expression, zone)
    return "".join(f"{', ' if name in ZONES else ' '}{SENTENCES[name] % values}" for name, values in found)[1:].strip()


def _of_fields(fields: list[str]) -> list[Phrase] | None:
    *second, minute, hour, day, month, weekday = fields
    time = _of_time(second[0] if second else "0", minute, hour)
    days = _of_days(day, month, weekday)
    if time is None or days is None:
        return None
    return [time, *(days or ([("daily", {})] if time[0] == "at" else []))]


def _of_time(second: str, minute: str, hour: str) -> Phrase | None:
    step = re.fullmatch(r"\*(?:/(\d{1,2}))?", second)
    if step:
        is_plain = (minute, hour) == ("*", "*")
        return _every("second", step[1], 60) if is_plain else None
    if second != "0":
        return None
    step = re.fullmatch(r"\*(?:/(\d{1,2}))?", minute)
    if step:
        return _every("minute", step[1], 60) if hour == "*" else None
    if not minute.isdigit():
        return None
    step = re.fullmatch(r"\*(?:/(\d{1,2}))?", hour)
    if step and not _is_even(step[1], 24):
        return None
    if step and int(step[1] or 1) > 1:
        return "hours", {"number": str(int(step[1])), "minute": minute}
    if step:
        return ("hour", {}) if int(minute) == 0 else ("hour_at", {"minute": minute})
    hours = hour.split(",")
    if not _NUMBERS.fullmatch(hour) or len(hours) > _MOST_TIMES:
        return None
    return "at", {"times": ", ".join(f"{int(one):02}:{int(minute):02}" for one in hours)}


def _every(unit: str, step: str | None, whole: int) -> Phrase | None:
    if not _is_even(step, whole):
        return None
    number = int(step or 1)
    return (unit, {}) if number == 1 else (f"{unit}s", {"number": str(number)})


def _is_even(step: str | None, whole: int) -> bool:
    """Whether ticks that far apart are so over the end of the minute, hour or day, too."""
    number = int(step or 1)
    return number > 0 and whole % number == 0 and number < whole


def _of_days(day: str, month: str, weekday: str) -> list[Phrase] | None:
    found: list[Phrase] = []
    if day != "*" and weekday != "*":
        return None
    if day.upper() == "L":
        found.append(("last", {}))
    elif day != "*":
        if not _NUMBERS.fullmatch(day):
            return None
        found.append(("day", {"days": day.replace(",", ", ")}))
    if weekday != "*":
        names = [*_weekdays(weekday.lower())]
        if not names:
            return None
        found += [(name, {}) for name in names]
    if month != "*":
        numbers = [str(_MONTHS.index(one) + 1) if one in _MONTHS else one for one in month.lower().split(",")]
        if not all(map(str.isdigit, numbers)):
            return None
        found.append(("months", {"months": ", ".join(numbers)}))
    return found


def _weekdays(text: str) -> Iterator[str]:
    """Names of parts; none: it is something else."""
    if text in ("1-5", "mon-fri"):
        yield "weekdays"
    elif text in ("0,6", "6,0", "6,7", "sat,sun", "sun,sat", "sat-sun"):
        yield "weekend"
    else:
        named = [_DAYS[int(one) % 7] if re.fullmatch("[0-7]", one) else one for one in text.split(",")]
        yield from named if all(one in _DAYS for one in named) else ()
