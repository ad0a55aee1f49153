"""What an operator should know of a Redis server."""

import re
from typing import Any

from tarry.errors import StoreError
from tarry.store.redis.link.base import RedisLink
from tarry.store.redis.scripts import GET
from tarry.store.rules.base import Diagnostic
from tarry.store.shared.diagnostics import distance

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
SLOW = 0.005
"""Seconds of a round trip, from which on workers wait for the network more than for the server."""


def info(link: RedisLink, section: str) -> dict[str, str]:
    """One section of INFO."""
    lines = link.command("INFO", section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def refuse_eviction(link: RedisLink) -> None:
    """StoreError if the server would throw jobs away to make room."""
    policy = info(link, "memory").get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StoreError(
            f"{link.url}: its maxmemory-policy is {policy}, so it may throw jobs away: CONFIG SET maxmemory-policy"
            " noeviction, and maxmemory-policy noeviction in redis.conf"
        )


def diagnostics(link: RedisLink, key: str) -> list[Diagnostic]:
    """Version, durability, memory, replicas, functions, clock and distance. key: any that the store has."""
    server, memory = info(link, "server"), info(link, "memory")
    return [
        _version(server),
        _durability(link),
        _eviction(memory.get("maxmemory_policy", "unknown")),
        _memory(memory),
        _replicas(info(link, "replication")),
        _functions(link, key),
        *distance(lambda: _server_time(link), SLOW),
    ]


def _version(server: dict[str, str]) -> Diagnostic:
    if "valkey_version" in server:
        return Diagnostic("valkey", server["valkey_version"])
    return Diagnostic("redis", server.get("redis_version", "unknown"))


def _durability(link: RedisLink) -> Diagnostic:
    persistence = info(link, "persistence")
    if persistence.get("aof_enabled") == "1":
        return _fsync(_setting(link, "appendfsync"))
    saved = _setting(link, "save")
    if saved == "":
        return Diagnostic("durability", "none: jobs end with the server", _SWITCH_ON)
    return Diagnostic("durability", "snapshots: a crash loses what came after the last", _SWITCH_ON)


def _fsync(how: str) -> Diagnostic:
    meaning, advice = _KEPT.get(how, ("how often it is synced is not told", ""))
    return Diagnostic("durability", f"appendonly yes, appendfsync {how}: {meaning}", advice)


def _setting(link: RedisLink, name: str) -> str:
    """A setting of the server, or `unknown`."""
    try:
        answer = link.command("CONFIG", "GET", name)
    except StoreError:
        # The account may not ask, or the hoster has removed CONFIG.
        return "unknown"
    return str(answer[1].decode()) if len(answer) == 2 else "unknown"


def _eviction(policy: str) -> Diagnostic:
    advice = "CONFIG SET maxmemory-policy noeviction, or it throws jobs away"
    return Diagnostic("eviction", policy, _advice_if(policy not in ("noeviction", "unknown"), advice))


def _replicas(replication: dict[str, str]) -> Diagnostic:
    """How many replicas are connected, and how many of them are not in step."""
    # The server lists only connected replicas. One that is gone is not in the list.
    states = [text for name, text in replication.items() if re.fullmatch(r"slave\d+", name)]
    behind = sum("state=online" not in text.split(",") for text in states)
    advice = _advice_if(behind, f"{behind} not in step: see INFO replication, and the log of the replica")
    return Diagnostic("replicas", replication.get("connected_slaves", "0"), advice, len(states) - behind)


def _functions(link: RedisLink, key: str) -> Diagnostic:
    try:
        # The key says which node of a cluster answers. Nothing else is asked.
        link.command("FCALL", GET.function, 1, key)
    except StoreError:
        advice = "allow the account +fcall and +function|load: then Redis needs less CPU for each call"
        return Diagnostic("functions", "not called: scripts do the same", advice)
    return Diagnostic("functions", "called")


def _memory(memory: dict[str, str]) -> Diagnostic:
    used, most = int(memory.get("used_memory", 0)), int(memory.get("maxmemory", 0))
    if not most:
        advice = "set maxmemory below the host's memory, so that the kernel never ends the server"
        return Diagnostic("memory", _size(used), advice)
    advice = _advice_if(used > 0.8 * most, "raise maxmemory before enqueues are refused")
    return Diagnostic("memory", f"{_size(used)} of {_size(most)}", advice, used / most)


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _server_time(link: RedisLink) -> int:
    seconds, microseconds = link.command("TIME")
    return int(seconds) * 1_000_000 + int(microseconds)


def _advice_if(so: Any, advice: str) -> str:
    return advice if so else ""
