"""What the master has to tell of itself, for the scoreboard."""

import msgspec
from msgspec import Struct
from msgspec.structs import replace


class PoolStatus(Struct, frozen=True):
    """A pool as the master wants it."""

    name: str
    workers: int
    failed: str = ""
    """Why its processes cannot begin; empty: they can."""
    least: int = 0
    most: int = 0
    """Between these it follows its backlog; 0: it does not."""


class MasterStatus(Struct, frozen=True):
    """What the master has to tell of itself."""

    generation: int = 1
    """Raised by each reload that came through."""
    asked: int = 0
    """Reloads that were asked for."""
    done: int = 0
    """Those that have ended, well or not: `asked` as it was when the last of them began."""
    reloading: str = ""
    """What a reload is at; empty: there is none."""
    trouble: str = ""
    """Why the last reload came to nothing; empty: it did not."""
    pools: list[PoolStatus] = []
    away: str = ""
    """Why the keeper cannot ask the store; empty: it can."""


def encode_within(notice: MasterStatus, room: int) -> bytes:
    """As JSON in so many bytes; of texts that are too long, as much as there is room for."""
    for most in (4000, 200, 0):
        pools = [replace(pool, failed=pool.failed[-most:] if most else "") for pool in notice.pools]
        trouble = notice.trouble[-most:] if most else notice.trouble[:100]
        short = replace(notice, trouble=trouble, pools=pools, away=notice.away[:200])
        text = msgspec.json.encode(short)
        if len(text) <= room:
            return text
    return msgspec.json.encode(replace(notice, trouble="", pools=[], away=""))
