"""Redis: a list of jobs, and a sorted set of those that run, by the end of their lease. One script a turn."""

from typing import Any, cast

import redis

from bench.raw.limit import CONTENT

_KEYS = ("tarry-raw:waiting", "tarry-raw:running")
"""For `wait` the second is a list, since no command moves from a list to a sorted set."""
_TURN = """
if #ARGV > 2 then redis.call('ZREM', KEYS[2], unpack(ARGV, 3)) end
local jobs = redis.call('LPOP', KEYS[1], ARGV[1])
if not jobs then return {} end
local args = {}
for k = 1, #jobs do args[2*k-1] = ARGV[2]; args[2*k] = jobs[k] end
redis.call('ZADD', KEYS[2], unpack(args))
return jobs"""


class RedisRaw:
    """One connection."""

    def __init__(self, url: str) -> None:
        self._redis: Any = redis.Redis.from_url(url)
        self._turn = self._redis.register_script(_TURN)
        self._number = 0

    def batch(self, size: int) -> list[bytes]:
        """Members of a list."""
        self._number += size
        return [b"%012d%s" % (number, CONTENT) for number in range(self._number - size, self._number)]

    def insert(self, batch: list[bytes]) -> None:
        """One command."""
        self._redis.rpush(_KEYS[0], *batch)

    def exchange(self, finished: list[bytes], size: int) -> list[bytes]:
        """One script."""
        return cast("list[bytes]", self._turn(_KEYS, (size, 2**40, *finished)))

    def hand_over(self) -> None:
        """One job, for who waits."""
        self.insert(self.batch(1))

    def wait(self, seconds: float) -> bool:
        """One command: the server answers once there is a job, which then stands among those that run."""
        return self._redis.blmove(*_KEYS, seconds) is not None

    def close(self) -> None:
        """Closes the connection."""
        self._redis.close()


def opened(target: str, durable: bool) -> RedisRaw:
    """A connection; how safe it is, is the server's to say."""
    return RedisRaw(target)


def emptied(target: str) -> None:
    """Removes the two keys."""
    with redis.Redis.from_url(target) as connection:
        connection.delete(*_KEYS)


removed = emptied
