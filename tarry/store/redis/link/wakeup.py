"""Wake-up over Redis.

Results, steps and recalls are PUBLISHed, each on its own channel, and one connection of a process and store subscribes
to them. Notices of work are different: each wakes one worker of all workers of one kind, on any host (`wakeup_line`).
In a cluster work is PUBLISHed too.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from tarry.model.wake import WakeReason
from tarry.store.redis.link.connection import RedisConnection
from tarry.store.redis.link.redis_errors import ErrorReply, error_of
from tarry.store.redis.link.wakeup_line import Connect, LineListener
from tarry.store.rules.sleeper import WORK, heard_reasons
from tarry.store.shared.wakeup.hub import WakeupHub
from tarry.store.shared.wakeup.listener import WakeupListener

ASK_AFTER = 10.0
"""Seconds of silence after which the server is asked whether it is still there."""
# Busy workers must not spend time on messages that wake no sleeper.
UNUSED = 16
"""After more messages in a row that wake no sleeper, the channel is given up until a sleeper listens again."""


def channel(prefix: str, reason: WakeReason) -> str:
    """The channel on which a reason to wake is PUBLISHed; the message itself is empty."""
    return f"{prefix}:wakeup:{reason}"


def redis_hub(connect: Connect, timeout: float, prefixes: Sequence[str], in_line: bool) -> WakeupHub:
    """The sleepers of a store. prefixes: the beginnings of the keys of each part. in_line: work wakes one worker of
    each kind."""
    return WakeupHub(lambda hub: RedisTransport(hub, connect, timeout, prefixes, in_line))


class RedisTransport:
    """One connection for all channels, and one for each kind of worker."""

    def __init__(
        self, hub: WakeupHub, connect: Connect, timeout: float, prefixes: Sequence[str], in_line: bool
    ) -> None:
        self._hub, self._connect, self._timeout = hub, connect, timeout
        self._prefixes, self._in_line = prefixes, in_line
        self._channels = ChannelListener(hub, connect, timeout)
        self._sources: dict[str, list[tuple[WakeupListener, Collection[str]]]] = {}
        """For each topic: the listeners that bring its news, and their channels."""

    def subscribe(self, topic: str) -> None:
        for listener, channels in self._sources_of(topic):
            listener.subscribe_to(channels)

    def is_receiving(self, topic: str) -> bool:
        return all(listener.heard.issuperset(channels) for listener, channels in self._sources_of(topic))

    def close(self) -> None:
        for listener in {listener for sources in self._sources.values() for listener, _ in sources}:
            listener.close()

    def _sources_of(self, topic: str) -> list[tuple[WakeupListener, Collection[str]]]:
        with self._hub.lock:
            if topic not in self._sources:
                self._sources[topic] = self._create_sources(topic)
            return self._sources[topic]

    def _create_sources(self, topic: str) -> list[tuple[WakeupListener, Collection[str]]]:
        reasons = heard_reasons(topic)
        # In a cluster a worker would have to wait in one line for each part. So work comes by channels there.
        if not (self._in_line and topic.startswith(WORK)):
            return [(self._channels, self._names(reasons))]
        line = LineListener(self._hub, self._connect, self._timeout, self._prefixes[0], topic)
        line.start()
        return [(self._channels, self._names(reasons - {WakeReason.WORK})), (line, {topic})]

    def _names(self, reasons: Collection[WakeReason]) -> set[str]:
        return {channel(prefix, reason) for prefix in self._prefixes for reason in reasons}


class ChannelListener(WakeupListener):
    """Hears messages on channels; the last letter of a channel's name is the reason to wake."""

    def __init__(self, hub: WakeupHub, connect: Connect, timeout: float) -> None:
        super().__init__("tarry-wakeup", hub, timeout)
        self._connect = connect
        self._subscribed: set[str] = set()
        self._unconfirmed = Counter[str]()
        """How many SUBSCRIBE of a channel are not answered yet."""
        self._unused = Counter[str]()
        """How many messages in a row on a channel woke no sleeper."""

    def subscribe_to(self, channels: Collection[str]) -> None:
        # Somebody listens again: the count of useless messages begins anew.
        for channel in channels:
            self._unused.pop(channel, None)
        super().subscribe_to(channels)

    def listen(self) -> None:
        connection = self._connect(self.deadline())
        self._subscribed, self._unconfirmed = set(), Counter()
        try:
            while not self.is_closed:
                for words in self._due():
                    connection.send([words], self.deadline())
                self._wait(connection)
                self._take(connection.take())
        finally:
            connection.close()

    def _due(self) -> list[tuple[str, ...]]:
        """The commands to send to the server now."""
        with self.lock:
            more, less = self.wanted - self._subscribed, self._subscribed - self.wanted
            self._subscribed = set(self.wanted)
            self._unconfirmed.update(more)
            # A channel may be given up and wanted again before the server is told. Then no answer comes for it: it is
            # heard all the time.
            self._confirm_answered()
        return [(verb, *names) for verb, names in (("SUBSCRIBE", more), ("UNSUBSCRIBE", less)) if names]

    def _wait(self, connection: RedisConnection) -> None:
        """Waits until the server says something, or there is something to tell it. ReplyLost: it is silent for too
        long."""
        if self._is_ready(connection, ASK_AFTER):
            return
        # A connection that broke without a word looks like silence. Any answer to this shows that it lives.
        connection.send([("PING",)], self.deadline())
        if not self._is_ready(connection, self.timeout):
            raise connection.timeout_error()

    def _is_ready(self, connection: RedisConnection, seconds: float) -> bool:
        # What TLS has read already is not on the socket: a poll would wait although there is something to read.
        readable, woken = self.poll(connection.fileno(), 0 if connection.has_pending else seconds)
        if readable or connection.has_pending:
            connection.read(self.deadline())
        return readable or woken

    def _take(self, frames: Iterable[Any]) -> None:
        """Takes what the server said. Raises the error if it refused something."""
        for frame in frames:
            if isinstance(frame, ErrorReply):
                raise error_of(frame, "the server")
            if isinstance(frame, list) and frame[0] == b"message":
                self._receive(frame[1].decode())
            elif isinstance(frame, list) and frame[0] == b"subscribe":
                with self.lock:
                    self._unconfirmed[frame[1].decode()] -= 1
                    self._confirm_answered()

    def _confirm_answered(self) -> None:
        # Only when all SUBSCRIBE are answered: the answer to an earlier one may come from before an UNSUBSCRIBE.
        channels = {name for name in self._subscribed if not self._unconfirmed[name]}
        if channels - self.heard:
            self.confirm(channels)

    def _receive(self, channel: str) -> None:
        with self.lock:
            if self.hub.wake(WakeReason(channel[-1])):
                self._unused.pop(channel, None)
                return
            self._unused[channel] += 1
            if self._unused[channel] > UNUSED:
                del self._unused[channel]
                self.wanted.discard(channel)
                self.heard.discard(channel)
