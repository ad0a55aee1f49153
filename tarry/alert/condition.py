"""Something that is wrong, as it is seen at one look."""

import re

from msgspec import Struct

from tarry.model.duration import SECOND

MOST_LINE, MOST_DETAILS = 300, 5
"""Characters of a line, and how many details there are."""

_STRANGE = re.compile(r"\s+|[^\x20-\x7e\xa0-\U0010ffff]")


class Condition(Struct, frozen=True):
    """`key` tells it from all others, of this host or of the store. Durations and times in microseconds."""

    key: str
    what: str
    """In a line that begins with the thing: `order.timeout: 3 jobs are dead`."""
    over: str
    """The line when it is so no more."""
    todo: str
    """What to do: a command to run."""
    details: tuple[str, ...] = ()
    """The first few ids, with reasons."""
    task: str = ""
    """Whose own recipients are told, too."""
    holds: int = 0
    """How long it has to be so before it is told."""
    calm: int = 30 * SECOND
    """How long it has to be gone before it is over."""
    since: int = 0
    """Since when, if that is known better than by when it was seen first."""
    ago: int = 0
    """How long it had been so when it was seen."""
    brief: str = ""
    """The line that begins what is told, later and together, of times too short to be told, as `x was away`. Empty:
    they are not."""
    soon: bool = False
    """It is told at once, without a wait for others that come up."""


def clean_line(text: str, most: int = MOST_LINE) -> str:
    """In one line, without what is not to be read, at most so many characters."""
    line = _STRANGE.sub(" ", text[: 4 * most]).strip()
    return line if len(line) <= most else line[: most - 3] + "..."
