"""A Redis that is Celery's broker: its queues, the messages in them, and how one is taken out."""

from collections.abc import Iterator
from typing import Any

import msgspec

from tarry.errors import ConfigError
from tarry.model.checks.decoders import decode_json
from tarry.store.redis.opening import server_link
from tarry.store.redis.url import parse_url

SEPARATOR = b"\x06\x16"
READ_AT_ONCE = 500
UNACKED, UNACKED_INDEX = "unacked", "unacked_index"
_OWN_QUEUES = (b".pidbox", b"celeryev", b".reply.")
_OTHER_BROKERS = {
    "amqp": "RabbitMQ", "amqps": "RabbitMQ", "pyamqp": "RabbitMQ", "sqs": "SQS", "kafka": "Kafka", "mongodb": "MongoDB",
    "sqla+postgresql": "a database", "sqla+sqlite": "a database", "filesystem": "files", "memory": "memory",
}  # fmt: skip

BrokerPlace = tuple[str, bytes]
"""A list and the message in it; of messages that were taken and not acknowledged, the hash and the field."""


class CeleryBroker:
    """The broker at a redis URL. prefix: `global_keyprefix` of Celery's settings."""

    def __init__(self, url: str, prefix: str = "") -> None:
        if other := _OTHER_BROKERS.get(url.partition("://")[0]):
            raise ConfigError(
                f"messages can be taken out of Redis only, not out of {other}: put nothing more there, let Celery's "
                "workers run beside tarry's until it is empty; docs/from/celery.md says how"
            )
        self._prefix = prefix
        target = parse_url(url)
        if target.kind == "cluster":
            raise ConfigError("Celery has no broker in a cluster: give the URL of a server or of sentinels")
        self._link = server_link(target)
        self._link.check()

    def close(self) -> None:
        """Closes the connections."""
        self._link.close()

    def queues(self) -> list[str]:
        """The names of the queues that Celery made here, and its default one."""
        found = {b"celery"}
        for key in self._scan(_escape(self._prefix) + "_kombu.binding.*"):
            found |= {member.split(SEPARATOR)[-1] for member in self._link.command("SMEMBERS", key)}
        plain = [name for name in found if not any(own in name for own in _OWN_QUEUES)]
        return sorted(name.decode(errors="replace") for name in plain)

    def size(self, queue: str) -> int:
        """How many messages wait in the queue."""
        return sum(self._link.command("LLEN", key) for key in self._lists(queue))

    def messages(self, queue: str) -> Iterator[tuple[BrokerPlace, bytes]]:
        """The messages of the queue, the first to be taken first. The caller may remove them meanwhile; of messages
        that others put or take meanwhile, some may be left out or come twice."""
        for key in self._lists(queue):
            left = 0
            # The right end is that from which Celery takes; what stays there is skipped.
            while page := self._link.command("LRANGE", key, str(-left - READ_AT_ONCE), str(-left - 1)):
                before = self._link.command("LLEN", key)
                for raw in reversed(page):
                    yield (key, raw), raw
                # Of this page and those before, so many are still at the right end.
                left = max(0, left + len(page) - (before - self._link.command("LLEN", key)))

    def unacked(self) -> Iterator[tuple[BrokerPlace, bytes, str]]:
        """The messages that workers took and did not acknowledge, each with the name of its queue."""
        for field, value in self._pairs(self._prefix + UNACKED):
            message, _, routing_key = decode_json(value, tuple[msgspec.Raw, Any, str])
            yield (UNACKED, field), bytes(message), routing_key

    def remove(self, place: BrokerPlace) -> bool:
        """Takes the message out. False: somebody else has done so meanwhile."""
        key, what = place
        if key != UNACKED:
            return bool(self._link.command("LREM", key, "-1", what))
        self._link.command("ZREM", self._prefix + UNACKED_INDEX, what)
        return bool(self._link.command("HDEL", self._prefix + UNACKED, what))

    def _lists(self, queue: str) -> list[str]:
        """The keys of the queue, the first priority first: kombu has a list for each step, and the steps are a
        setting."""
        own = (self._prefix + queue).encode()
        start = own + SEPARATOR
        steps = [key[len(start) :] for key in self._scan(_escape(start.decode()) + "*") if key.startswith(start)]
        numbers = sorted({int(step) for step in steps if step.isdigit()})
        return [own.decode(), *((start + str(number).encode()).decode() for number in numbers)]

    def _scan(self, pattern: str) -> Iterator[bytes]:
        cursor = b"0"
        while True:
            cursor, keys = self._link.command("SCAN", cursor, "MATCH", pattern, "COUNT", "1000")
            yield from keys
            if cursor == b"0":
                return

    def _pairs(self, key: str) -> Iterator[tuple[bytes, bytes]]:
        values = self._link.command("HGETALL", key)
        flat = [part for pair in values.items() for part in pair] if isinstance(values, dict) else values
        yield from zip(flat[::2], flat[1::2], strict=True)


def _escape(text: str) -> str:
    """The text as a pattern of Redis that means just it."""
    return "".join(f"\\{char}" if char in "*?[]\\" else char for char in text)
