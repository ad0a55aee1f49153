"""Kinds of settings that more than one file of settings needs."""

import json
import re
from typing import Annotated, Any

from msgspec import Meta

from tarry.model.duration import microseconds
from tarry.settings import Kind


def number(text: str) -> Any:
    """The number that a variable's text is, or the text itself."""
    return json.loads(text) if re.fullmatch(r"-?\d+(\.\d+)?", text) else text


DURATION = Kind('a duration such as 90 (seconds) or "1h30m"', int | float | str, microseconds, number)
FROM_0 = Kind("a whole number of 0 or more", Annotated[int, Meta(ge=0)], spelled=number)
FRACTION = Kind("a number from 0 to 1", Annotated[float, Meta(ge=0, le=1)], spelled=number)
