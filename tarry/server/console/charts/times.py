"""Times on pages: in UTC or in the zone that the reader has chosen, which is named beside each of them."""

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

COOKIE = "tarry_zone"
UTC_NAME, LOCAL_NAME = "UTC", "local"
MOST_NAME = 64
"""Characters of the name of a zone."""
UNKNOWN = "?"
"""Stands for a time before the year 1 or after 9999."""


class Zone:
    """The zone of a reader. name: `UTC`; `Europe/Berlin`, as browsers know it; or `local`, that of this server."""

    __slots__ = ("_info", "name")

    def __init__(self, name: str = UTC_NAME, info: tzinfo | None = UTC) -> None:
        # None: that of the server, which has one for each moment.
        self.name, self._info = name, info

    @property
    def is_utc(self) -> bool:
        """Whether nobody has chosen another one."""
        return self.name == UTC_NAME

    def moment(self, seconds: float) -> datetime | None:
        """The time in this zone, of seconds since the epoch; None for one that no calendar has."""
        try:
            return datetime.fromtimestamp(seconds, UTC).astimezone(self._info)
        except (ValueError, OverflowError, OSError):
            # Some times are written by other programs: none of them may keep a page from being shown.
            return None

    def second(self, seconds: float) -> str:
        """`2026-11-24 17:03:31 UTC+01:00`."""
        return self._written(seconds, "%Y-%m-%d %H:%M:%S")

    def minute(self, seconds: float) -> str:
        """`2026-11-24 17:03 UTC+01:00`."""
        return self._written(seconds, "%Y-%m-%d %H:%M")

    def offset(self, seconds: float) -> int:
        """How many seconds it is ahead of UTC at that time."""
        found = self.moment(seconds)
        return 0 if found is None else round((found.utcoffset() or timedelta()).total_seconds())

    def _written(self, seconds: float, form: str) -> str:
        found = self.moment(seconds)
        if found is None:
            return UNKNOWN
        ahead = found.strftime("%z")
        named = UTC_NAME if self.is_utc else f"{UTC_NAME}{ahead[:3]}:{ahead[3:5]}"
        return f"{found.strftime(form)} {named}"


ONLY_UTC = Zone()


@lru_cache(maxsize=64)
def zone_of(name: str | None) -> Zone:
    """The zone of that name, from a cookie or a form; UTC if there is none."""
    if name == LOCAL_NAME:
        return Zone(LOCAL_NAME, None)
    if not name or len(name) > MOST_NAME or name == UTC_NAME:
        return ONLY_UTC
    try:
        return Zone(name, ZoneInfo(name))
    # Of a name that is none of a file, of a folder, or of a file that is no zone; KeyError: there is no such zone.
    except (ValueError, OSError, KeyError):
        return ONLY_UTC
