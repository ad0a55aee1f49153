"""What a person has put off of what needs attention: kept in a cookie of theirs, for a day or a week."""

import re
from collections.abc import Mapping

from msgspec import Struct

COOKIE = "tarry_put_off"
DAYS = (1, 7)
"""For how long something can be put off."""
MOST = 20
"""Things that are put off at once: with more, those that would come back soonest do so."""
LASTS = max(DAYS) * 86400
_ENTRY = re.compile(r"([0-9a-f]{12})-(\d{1,2})-(\d{1,10})", re.ASCII)


class PutOffUntil(Struct, frozen=True):
    """When it comes back: at that time, in seconds since the epoch, or as soon as it is of a higher level."""

    level: int
    time: int


def read_put_off(cookie: str | None, now: float) -> Mapping[str, PutOffUntil]:
    """What is put off at this time, by its mark."""
    # Whoever owns the browser may have written anything.
    parts = (_ENTRY.fullmatch(part) for part in (cookie or "").split(".", 2 * MOST)[:MOST])
    found = {part[1]: PutOffUntil(int(part[2]), int(part[3])) for part in parts if part}
    return {mark: until for mark, until in found.items() if now < until.time <= now + LASTS}


def put_off(cookie: str | None, mark: str, days: int, now: float) -> str:
    """The cookie with this, too. mark: as `written_mark` has it. ValueError."""
    if days not in DAYS or not _ENTRY.fullmatch(f"{mark}-0"):
        raise ValueError("there is nothing to put off, or not for so long")
    name, _, level = mark.partition("-")
    kept = {**read_put_off(cookie, now), name: PutOffUntil(int(level), int(now) + days * 86400)}
    latest = sorted(kept.items(), key=lambda one: one[1].time)[-MOST:]
    return ".".join(f"{name}-{until.level}-{until.time}" for name, until in latest)


def written_mark(mark: str, level: int) -> str:
    """What the form of something sends. mark: 12 hexadecimal digits, which tell it from others."""
    return f"{mark}-{level}"
