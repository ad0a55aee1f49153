"""UUIDv7 (RFC 9562): made by the client, sorted by time, and within one process by the order of their making."""

import os
import random
import threading
import time
from typing import Annotated

from msgspec import Meta

from tarry.model.quantity import MAX_SHORT, shorten
from tarry.platform import at_fork

# Only in documents: `parse` tells what is wrong in better words than a pattern would.
_SCHEMA = {"pattern": "^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$", "minLength": 32}
IdText = Annotated[str, Meta(max_length=MAX_SHORT, extra_json_schema=_SCHEMA)]
"""An id in text, as a request has it."""

_RANDOM_BITS = 74
_random = random.Random()
_lock = threading.Lock()
_last_ms = 0
_last_tail = 0


def uuid7() -> bytes:
    """A new id, 16 bytes, greater than all that this process made before."""
    # Method 2 of section 6.2: a counter that grows by random steps, so that others cannot guess ids. The counter also
    # goes on where the clock was set back.
    global _last_ms, _last_tail
    now = time.time_ns() // 1_000_000
    with _lock:
        # One bit less than there is room for: so the counter can grow for long before it overflows.
        if now > _last_ms:
            _last_ms, _last_tail = now, _random.getrandbits(_RANDOM_BITS - 1)
        else:
            _last_tail += _random.getrandbits(32) + 1
            # Overflow: borrow the next millisecond, so that ids still grow.
            if _last_tail >> _RANDOM_BITS:
                _last_ms, _last_tail = _last_ms + 1, _random.getrandbits(_RANDOM_BITS - 1)
        ms, tail = _last_ms, _last_tail
    value = ms << 80 | 0x7 << 76 | tail >> 62 << 64 | 0b10 << 62 | tail & (1 << 62) - 1
    return value.to_bytes(16, "big")


def text(id: bytes) -> str:
    """The usual form: 8-4-4-4-12 hexadecimal digits."""
    digits = id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse(text: str) -> bytes:
    """The 16 bytes of an id in text, with or without dashes; ValueError if it is none."""
    digits = text.replace("-", "") if len(text) <= MAX_SHORT else ""
    # `fromhex` skips white space, so its own check would let some through.
    if len(digits) != 32 or not digits.isalnum():
        raise ValueError(f"{shorten(text)} is no job id: 32 hexadecimal digits, with or without dashes")
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise ValueError(f"{shorten(text)} is no job id: 32 hexadecimal digits, with or without dashes") from None


def _after_fork() -> None:
    """Starts anew in a forked child."""
    # With its parent's counter and random numbers it would make the same ids; and a thread of the parent, which the
    # child does not have, may hold the lock.
    global _lock, _last_ms, _last_tail
    _random.seed(os.urandom(32))
    _lock, _last_ms, _last_tail = threading.Lock(), 0, 0


at_fork(after_in_child=_after_fork)
