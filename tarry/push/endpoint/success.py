"""Status codes that count as delivered: `"2xx"`, `"200-299"`, `[200, 204]`, `"2xx, 304"`."""

import re
from typing import Any

from msgspec import Struct

from tarry.model.quantity import MAX_SHORT, shorten

_CLASS, _RANGE = re.compile(r"([2-5])xx", re.IGNORECASE), re.compile(r"(\d{3})(?:\s*-\s*(\d{3}))?")
MOST_WRITTEN = 1000
"""Characters of a text."""
_EXPECTED = 'write "2xx", "200-299", 204, or a list of these'


class SuccessCodes(Struct, frozen=True):
    """A set of status codes; `status in success`."""

    ranges: tuple[tuple[int, int], ...] = ((200, 299),)
    """First and last code of each range."""

    def __contains__(self, status: int) -> bool:
        return any(first <= status <= last for first, last in self.ranges)

    @classmethod
    def parse(cls, written: Any) -> "SuccessCodes":
        """The set of this value from TOML or JSON; ValueError if it is wrong."""
        if isinstance(written, str) and len(written) > MOST_WRITTEN:
            raise ValueError(f"a text of {len(written)} characters; at most {MOST_WRITTEN}")
        parts = written.split(",") if isinstance(written, str) else written if isinstance(written, list) else [written]
        if not 0 < len(parts) <= 100:
            raise ValueError(f"no status; {_EXPECTED}")
        return cls(tuple(_range(part) for part in parts))


def _range(part: Any) -> tuple[int, int]:
    # true is an int too.
    is_short = isinstance(part, int) or (isinstance(part, str) and len(part) <= MAX_SHORT)
    text = str(part).strip() if is_short and not isinstance(part, bool) else ""
    if whole := _CLASS.fullmatch(text):
        return int(whole[1]) * 100, int(whole[1]) * 100 + 99
    if found := _RANGE.fullmatch(text):
        first, last = int(found[1]), int(found[2] or found[1])
        if 200 <= first <= last <= 599:
            return first, last
    raise ValueError(f"{shorten(part)} is no status from 200 to 599; {_EXPECTED}")
