"""What the account must be allowed to do on the server, and what is missing where it may not do the rest.

A script that is refused one of its commands is broken off with half of its work done, and the server takes back
nothing. So all commands are asked for when the store is opened.
"""

from collections.abc import Callable
from itertools import chain

from tarry.errors import ConfigError
from tarry.store.redis.scripts import REFUSED
from tarry.store.rules.base import Diagnostic

RunCommand = Callable[..., list[bytes]]
"""Runs a script with these arguments."""

NEEDED = (
    *("EVAL", "EVALSHA", "INFO", "PING", "TIME"),
    *("DECRBY", "DEL", "EXISTS", "GET", "INCR", "INCRBY", "LRANGE", "LTRIM", "RPUSH", "UNLINK"),
    *("HDEL", "HEXISTS", "HGET", "HGETALL", "HINCRBY", "HKEYS", "HLEN", "HMGET", "HRANDFIELD", "HSCAN", "HSET"),
    *("HSETNX", "SADD", "SISMEMBER", "SMEMBERS", "SREM"),
    *("ZADD", "ZCARD", "ZLEXCOUNT", "ZPOPMIN", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREM", "ZREMRANGEBYLEX"),
    *("ZREMRANGEBYSCORE", "ZREVRANGEBYLEX", "ZSCORE"),
)
"""Without one of these the store is not opened. In a cluster CLUSTER SLOTS is needed, too, and says so itself."""
_POLLS = "an idle worker looks for jobs once a second"
_SLOWER = "the server makes scripts anew at each call"
OPTIONAL = {
    "BLPOP": _POLLS,
    "CLIENT ID": "a job that comes to an idle worker starts a little later",
    "CLIENT UNBLOCK": "a job that comes to an idle worker starts a little later",
    "CONFIG GET": "this check does not know how often the server syncs its disk",
    "FCALL": _SLOWER,
    "FUNCTION DELETE": "functions of earlier versions are left behind",
    "FUNCTION LIST": "functions of earlier versions are left behind",
    "FUNCTION LOAD": _SLOWER,
    "PUBLISH": "results and progress are noticed later",
    "SUBSCRIBE": "results and progress are noticed later",
    "UNSUBSCRIBE": "results and progress are noticed later",
    "WAIT": 'durable="replica" is refused',
    "WAITAOF": 'durable="replica" is refused with confirm=disk',
}
"""Commands without which it works, and what is missing then."""
_ONE_KEY, _KEYS, _SCRIPT = "KEY 0 0 0", "KEY", "0 1 KEY"
_ARGUMENTS = {
    **dict.fromkeys(("DEL", "EXISTS", "UNLINK", "SUBSCRIBE", "UNSUBSCRIBE"), _KEYS),
    **dict.fromkeys(("EVAL", "EVALSHA", "FCALL"), _SCRIPT),
    "BLPOP": "KEY 0",
    "PUBLISH": "KEY 0",
}
"""What a command is asked for with: as many arguments as a true call has at least."""


def require_rights(run: RunCommand, where: str) -> None:
    """ConfigError if the account may not run a command that is needed."""
    if refused := _refused_commands(run, NEEDED):
        names, rights = ", ".join(refused), _rights(refused)
        raise ConfigError(
            f"{where}: its account may not run {names}, which tarry needs: ACL SETUSER name {rights} allows it"
        )


def rights(run: RunCommand) -> Diagnostic:
    """What the account may not do, of what tarry can do without."""
    if not (refused := _refused_commands(run, tuple(OPTIONAL))):
        return Diagnostic("rights", "all that tarry uses")
    missing = "; ".join(dict.fromkeys(OPTIONAL[name] for name in refused))
    return Diagnostic("rights", f"without {', '.join(refused)}: {missing}", f"ACL SETUSER name {_rights(refused)}")


def _refused_commands(run: RunCommand, commands: tuple[str, ...]) -> list[str]:
    calls = chain.from_iterable((name, _ARGUMENTS.get(name, _ONE_KEY)) for name in commands)
    return [name.decode() for name in run(REFUSED, *calls)]


def _rights(commands: list[str]) -> str:
    channels = ["&{tarry*}*"] if {"PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE"} & set(commands) else []
    return " ".join([*channels, *(f"+{name.lower().replace(' ', '|')}" for name in commands)])
