"""What an operator should know of a Redis server."""

import re
import time
from collections.abc import Callable
from typing import Any

from tarry.errors import StoreError
from tarry.store.base import Fact
from tarry.store.redis.link import Link

_KEPT = {
    "always": ("each call is on disk when it is answered", ""),
    "everysec": (
        "a crash of the host loses the last second or two; appendfsync always loses nothing",
        "",
    ),
    "no": (
        "a crash of the host loses what the system had not written yet, up to 30 s",
        "CONFIG SET appendfsync everysec, and appendfsync everysec in redis.conf",
    ),
}
_SWITCH_ON = "CONFIG SET appendonly yes, and appendonly yes in redis.conf"
FAR = 0.5
"""Seconds between this host's clock and the server's from which on somebody should look."""
SLOW = 0.005
"""Seconds of a round trip from which on the network, and not the server, is what holds workers up."""


def info(link: Link, section: str) -> dict[str, str]:
    """One section of INFO."""
    lines = link.command("INFO", section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def refuse_eviction(link: Link) -> None:
    """StoreError if the server would throw jobs away to make room."""
    policy = info(link, "memory").get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StoreError(
            f"{link.url}: its maxmemory-policy is {policy}, so it may throw jobs away: CONFIG SET maxmemory-policy"
            " noeviction, and maxmemory-policy noeviction in redis.conf"
        )


def facts(link: Link) -> list[Fact]:
    """Version, durability, memory, replicas, clock and distance."""
    server, memory = info(link, "server"), info(link, "memory")
    return [
        _version(server),
        _durability(link),
        _eviction(memory.get("maxmemory_policy", "unknown")),
        _memory(memory),
        _replicas(info(link, "replication")),
        *_clock(lambda: _told(link)),
    ]


def _version(server: dict[str, str]) -> Fact:
    if "valkey_version" in server:
        return Fact("valkey", server["valkey_version"])
    return Fact("redis", server.get("redis_version", "unknown"))


def _durability(link: Link) -> Fact:
    persistence = info(link, "persistence")
    if persistence.get("aof_enabled") == "1":
        return _fsync(_setting(link, "appendfsync"))
    saved = _setting(link, "save")
    if saved == "":
        return Fact("durability", "none: jobs end with the server", _SWITCH_ON)
    return Fact("durability", "snapshots: a crash loses what came after the last", _SWITCH_ON)


def _fsync(how: str) -> Fact:
    meaning, advice = _KEPT.get(how, ("how often it is synced is not told", ""))
    return Fact("durability", f"appendonly yes, appendfsync {how}: {meaning}", advice)


def _setting(link: Link, name: str) -> str:
    """`unknown` where the account may not ask, or where the command is not there, as at some hosters."""
    try:
        answer = link.command("CONFIG", "GET", name)
    except StoreError:
        return "unknown"
    return str(answer[1].decode()) if len(answer) == 2 else "unknown"


def _eviction(policy: str) -> Fact:
    advice = "CONFIG SET maxmemory-policy noeviction, or it throws jobs away"
    return Fact("eviction", policy, _if(policy not in ("noeviction", "unknown"), advice))


def _replicas(replication: dict[str, str]) -> Fact:
    """Those that are connected; one that is not in step says so, one that is gone is not told of any more."""
    states = [text for name, text in replication.items() if re.fullmatch(r"slave\d+", name)]
    behind = sum("state=online" not in text.split(",") for text in states)
    advice = _if(behind, f"{behind} not in step: see INFO replication, and the log of the replica")
    return Fact("replicas", replication.get("connected_slaves", "0"), advice, len(states) - behind)


def _memory(memory: dict[str, str]) -> Fact:
    used, most = int(memory.get("used_memory", 0)), int(memory.get("maxmemory", 0))
    if not most:
        advice = "set maxmemory below the host's memory, so that the kernel never ends the server"
        return Fact("memory", _size(used), advice)
    advice = _if(used > 0.8 * most, "raise maxmemory before enqueues are refused")
    return Fact("memory", f"{_size(used)} of {_size(most)}", advice, used / most)


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _told(link: Link) -> int:
    seconds, microseconds = link.command("TIME")
    return int(seconds) * 1_000_000 + int(microseconds)


def _clock(told: Callable[[], int]) -> list[Fact]:
    """By the fastest of a few looks."""
    trips = []
    for _ in range(5):
        start = time.monotonic()
        moment = told()
        trip = time.monotonic() - start
        trips.append((trip, moment / 1e6 + trip / 2 - time.time()))
    trip, offset = min(trips)
    return [
        Fact("clock offset", f"{offset * 1000:+.1f} ms", _if(abs(offset) > FAR, "run NTP on both hosts")),
        Fact("round trip", f"{trip * 1000:.2f} ms", _if(trip > SLOW, "keep workers near the server")),
    ]


def _if(so: Any, advice: str) -> str:
    return advice if so else ""
