"""Parses times given on the command line."""

import time
from datetime import datetime

from tarry.errors import UsageError
from tarry.model.duration import SECOND, microseconds
from tarry.model.quantity import MAX_SHORT, shorten


def parse_since(text: str) -> float:
    """Seconds since the epoch, from a time in the past or from how long ago it was; UsageError."""
    now = time.time()
    try:
        is_number = len(text) <= MAX_SHORT and text.replace(".", "", 1).isdigit()
        return now - microseconds(float(text) if is_number else text) / SECOND
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text[:MAX_SHORT]).astimezone().timestamp()
    # OverflowError: in another zone the time may lie before the year 1 or after 9999.
    except (ValueError, OverflowError):
        reason = f"--since {shorten(text)} is no time: write it as in 2030-12-31T23:59Z, or how long ago, as in 10m"
        raise UsageError(reason) from None
    if found > now:
        raise UsageError(f"--since {text} is yet to come")
    return found
