"""Something that is wrong, as one check finds it."""

import re

from msgspec import Struct

from tarry.model.duration import SECOND

MOST_LINE, MOST_DETAILS = 300, 5
"""The most characters in a line, and the most details."""

_STRANGE = re.compile(r"\s+|[^\x20-\x7e\xa0-\U0010ffff]")


class Condition(Struct, frozen=True):
    """`key` is unique among the conditions of this host or of the store. Times and durations are in microseconds."""

    key: str
    what: str
    """One line that begins with the thing: `order.timeout: 3 jobs are dead`."""
    over: str
    """The line for its end."""
    todo: str
    """What to do: a command to run."""
    details: tuple[str, ...] = ()
    """The first few ids, with reasons."""
    task: str = ""
    """The task whose own recipients are notified, too."""
    holds: int = 0
    """How long it must hold before it is reported."""
    calm: int = 30 * SECOND
    """How long it must be gone before it counts as over."""
    since: int = 0
    """When it began, where that is known; else it began when it was first seen."""
    ago: int = 0
    """How long it had already held when it was seen."""
    brief: str = ""
    """The start of the line that later sums up outages too short to report, as `x was away`. Empty: they are not
    reported at all."""
    where: str = ""
    """The path of the console's page that shows it; empty: none does."""
    soon: bool = False
    """It is reported at once and does not wait for others to join it."""


def clean_line(text: str, most: int = MOST_LINE) -> str:
    """The text as one line without unprintable characters, at most `most` characters long."""
    # Cut before the search, so that a huge text costs no more than a long one.
    line = _STRANGE.sub(" ", text[: 4 * most]).strip()
    return line if len(line) <= most else line[: most - 3] + "..."
