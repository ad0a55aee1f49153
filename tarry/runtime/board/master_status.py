"""What the master shows of itself on the scoreboard."""

from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace


class PoolStatus(Struct, frozen=True):
    """A pool, and how many workers the master wants in it."""

    name: str
    workers: int
    failed: str = ""
    """Why its processes cannot start; empty: they can."""
    least: int = 0
    most: int = 0
    """Bounds within which the pool follows its backlog; 0: it does not."""
    ended: dict[str, int] = {}
    """How many of its processes had to be replaced since the master began, by the reason: `jobs`, `age` or `memory` (a
    limit of the pool), `hang` (a job that did not end), `crash`, `killed` or `signal`, as queries/hosts.py says."""


class Origin(Struct, frozen=True):
    """Why the generation that serves began."""

    kind: Literal["start", "reload", "upgrade"] = "start"
    by: str = ""
    """Who asked for it: what somebody said of itself, and no identity; empty: not known."""


class MasterStatus(Struct, frozen=True):
    """What the master shows of itself. Field names are JSON keys of `tarry status`."""

    generation: int = 1
    """Each successful reload adds one."""
    asked: int = 0
    """How many reloads were requested."""
    done: int = 0
    """Of these, how many are over, with or without success: `asked` when the last of them began."""
    reloading: str = ""
    """The stage of a running reload; empty: none runs."""
    trouble: str = ""
    """Why the last reload failed; empty: it did not."""
    pools: list[PoolStatus] = []
    away: str = ""
    """Why the keeper cannot reach the store; empty: it can."""
    listening: dict[str, list[str]] = {}
    """The addresses at which servers accept, by door."""
    upgrades: int = 0
    """How many upgrades were requested."""
    upgrading: int = 0
    """The pid of a new master that starts; 0: none does."""
    upgrade_trouble: str = ""
    """Why the last upgrade failed; empty: it did not."""
    reloaded: float = 0.0
    """When the last reload ended, in seconds since the epoch; 0: there was none."""
    origin: Origin = Origin()


def encode_within(status: MasterStatus, limit: int) -> bytes:
    """As JSON of at most `limit` bytes; texts that are too long are cut."""
    for most in (4000, 200, 0):
        # The end of a text is kept: in a traceback, that is the error.
        pools = [replace(pool, failed=pool.failed[-most:] if most else "") for pool in status.pools]
        trouble = status.trouble[-most:] if most else status.trouble[:100]
        upgrade_trouble = status.upgrade_trouble[:200]
        short = replace(status, upgrade_trouble=upgrade_trouble, trouble=trouble, pools=pools, away=status.away[:200])
        text = msgspec.json.encode(short)
        if len(text) <= limit:
            return text
    # Very many pools are too long even without texts.
    return msgspec.json.encode(replace(status, trouble="", pools=[], away="", listening={}, upgrade_trouble=""))
