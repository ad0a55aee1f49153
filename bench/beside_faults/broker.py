"""The Redis of a cell, and what it still has of jobs."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import redis

from tests.servers.redis import RedisServer

DURABLE = ("--appendonly", "yes", "--appendfsync", "everysec")


class Broker(RedisServer):
    """One server, which writes all down before it answers: what it acknowledged survives its own death."""

    def stored(self, jobs: Iterable[str]) -> set[str]:
        """Those whose name stands anywhere in the server: waiting, held by a worker, or failed and kept."""
        client: Any = redis.Redis(port=self.port)
        with closing(client):
            texts = list(_texts(client))
        return {job for job in jobs if any(job.encode() in text for text in texts)}


def _texts(client: Any) -> Iterator[bytes]:
    for key in client.scan_iter(count=1000):
        yield key
        yield from _READERS[client.type(key)](client, key)


def _hash(client: Any, key: bytes) -> Iterator[bytes]:
    for name, value in client.hgetall(key).items():
        yield name
        yield value


def _stream(client: Any, key: bytes) -> Iterator[bytes]:
    for _, fields in client.xrange(key):
        yield from fields.values()


_READERS: dict[bytes, Any] = {
    b"string": lambda client, key: filter(None, [client.get(key)]),
    b"list": lambda client, key: client.lrange(key, 0, -1),
    b"set": lambda client, key: client.smembers(key),
    b"zset": lambda client, key: client.zrange(key, 0, -1),
    b"hash": _hash,
    b"stream": _stream,
    b"none": lambda client, key: [],
}
