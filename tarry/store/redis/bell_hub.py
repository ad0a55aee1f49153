"""Bells over Redis: who sleeps in this process, and how it hears.

Results, steps and recalls are PUBLISHed, a channel each, and one connection a process and store hears them (`Ear`).
Work is not for everybody: workers wait for their turn in line, over all hosts, and each ring wakes one of each kind
(`Turn`). In a cluster, where a worker would have to stand in as many lines as there are parts, work is PUBLISHed too.

While nobody listens in this process, rings come for nothing; after a few of those a channel is given up until the next
one arms, so that busy workers hear none. While a connection is broken its bells are deaf, and whoever waits on one
looks again after a short, growing time.
"""

import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from tarry.store.redis.bell import Channel, HubBell, Source
from tarry.store.redis.bell_ear import Connect, Ear
from tarry.store.redis.bell_turn import Turn
from tarry.store.redis.link_refusal import Refusal, error_of
from tarry.store.shared.bell import FOLLOW, FULL, RESULT, WORK, Bell, one_of_each

FOR_NOTHING = 16
"""So many rings in a row that nobody was armed for, and a channel is given up for the time being."""
_LETTERS = {FULL: "c", RESULT: "r", FOLLOW: "fr"}
"""What a topic hears: w work, r results, f steps, c recalls."""


class Hub:
    """The bells of one store in one process. `connect` opens a connection by a deadline, or raises a TarryError.

    bases: of each part of the store, what its channels' names begin with. in_turn: work wakes one of each kind.
    """

    def __init__(self, connect: Connect, timeout: float, bases: Sequence[str], in_turn: bool) -> None:
        self._connect, self._timeout = connect, timeout
        self._pid = os.getpid()
        self._news = threading.Condition()
        self._bells: set[HubBell] = set()
        self._channels = {c.name: c for c in (Channel(base, letter) for base in bases for letter in "wrfc")}
        self._base, self._in_turn = bases[0], in_turn
        self._turns: dict[str, Turn] = {}
        self._ear: Ear | None = None
        self._deaf = False
        """The ear has no connection, and cannot have one just now: nothing to wait for."""
        self._closed = False

    def bell(self) -> Bell:
        """A new one."""
        bell = HubBell(self)
        with self._news:
            self._bells.add(bell)
            if self._ear is None and not self._closed:
                self._ear = Ear(self._connect, self._timeout, self)
        return bell

    def arm(self, bell: "HubBell", topic: str) -> None:
        """It is about to sleep. Returns once it will be rung, or it is clear that just now it cannot."""
        with self._news:
            bell.sources = sources = self._sources(topic)
            if not all(source.wanted and source.heard for source in sources):
                self._listen(sources)
            bell.topic = topic
            for source in sources:
                if isinstance(source, Channel):
                    source.useless = 0
                elif not source.waiting:
                    self._news.notify_all()

    def leave(self, bell: "HubBell") -> None:
        """It is closed."""
        with self._news:
            self._bells.discard(bell)

    def close(self) -> None:
        """Ends the threads and their connections. In a forked child they are not there, and not ours; and whoever held
        a lock at the time of the fork holds it for ever."""
        if self._pid != os.getpid():
            return
        with self._news:
            self._closed = self._deaf = True
            ear, self._ear = self._ear, None
            self._news.notify_all()
        for turn in self._turns.values():
            turn.close()
        if ear is not None:
            ear.close()

    def _sources(self, topic: str) -> "list[Channel | Turn]":
        working = topic.startswith(WORK)
        letters = ("c" if self._in_turn else "wc") if working else _LETTERS[topic]
        heard: list[Channel | Turn] = [channel for channel in self._channels.values() if channel.letter in letters]
        if working and self._in_turn and not self._closed:
            if topic not in self._turns:
                self._turns[topic] = Turn(self._connect, self._timeout, self._base, topic, self)
            heard.append(self._turns[topic])
        return heard

    def _listen(self, sources: Sequence[Source]) -> None:
        for source in sources:
            source.wanted = True
        if self._ear is not None:
            self._ear.poke()
            self._news.wait_for(
                lambda: all(source.heard or self._hopeless(source) for source in sources), self._timeout
            )

    def _hopeless(self, source: Source) -> bool:
        return self._closed or (source.deaf if isinstance(source, Turn) else self._deaf)

    # What the ear calls

    def due(self) -> list[tuple[str, ...]]:
        """What to tell the server now."""
        with self._news:
            more = [channel for channel in self._channels.values() if channel.wanted and not channel.sent]
            less = [channel for channel in self._channels.values() if channel.sent and not channel.wanted]
            for channel in more:
                channel.sent = True
                channel.unconfirmed += 1
            for channel in less:
                channel.sent = False
        told = (("SUBSCRIBE", more), ("UNSUBSCRIBE", less))
        return [(verb, *[channel.name for channel in channels]) for verb, channels in told if channels]

    def take(self, frames: Iterable[Any]) -> None:
        """What the server said. Raises what it refused."""
        with self._news:
            for frame in frames:
                if isinstance(frame, Refusal):
                    raise error_of(frame, "the server")
                if isinstance(frame, list) and frame[0] == b"message":
                    self._rung(self._channels[frame[1].decode()])
                elif isinstance(frame, list) and frame[0] == b"subscribe":
                    self._confirmed(self._channels[frame[1].decode()])

    def deafened(self) -> None:
        """The connection is gone. All who sleep look now, and then by themselves: they are not woken at each try."""
        with self._news:
            was_deaf, self._deaf = self._deaf, True
            for channel in self._channels.values():
                channel.sent, channel.unconfirmed = False, 0
            if not was_deaf:
                self._ring(bell for bell in self._bells if bell.topic)
            self._news.notify_all()

    def _confirmed(self, channel: Channel) -> None:
        channel.unconfirmed -= 1
        if channel.heard:
            if self._deaf:
                # Who armed while it was deaf may have missed something.
                self._ring(bell for bell in self._bells if bell.topic)
            self._deaf = self._closed
            self._news.notify_all()

    def _rung(self, channel: Channel) -> None:
        armed = [bell for bell in self._bells if bell.topic and channel in bell.sources]
        if armed:
            channel.useless = 0
            self._ring(armed if channel.letter != "w" else _one_of_each(armed))
            return
        channel.useless += 1
        if channel.useless > FOR_NOTHING:
            channel.wanted, channel.useless = False, 0

    # What the turns call

    @property
    def news(self) -> threading.Condition:
        """Guards all that is said of bells here; notified when one is armed."""
        return self._news

    def sleepers(self, topic: str) -> "list[HubBell]":
        """Who is armed for that; `news` must be held."""
        return [bell for bell in self._bells if bell.topic == topic]

    def _ring(self, bells: "Iterable[HubBell]") -> None:
        for bell in list(bells):
            bell.ring()


def _one_of_each(armed: Sequence[HubBell]) -> list[HubBell]:
    return [armed[number] for number in one_of_each((number, bell.topic) for number, bell in enumerate(armed))]
