"""A sleeper's bell over Redis, and the channels that it hears."""

from collections.abc import Sequence
from typing import Protocol

from tarry.store.shared.bell import Bell

LOOK_FIRST, LOOK_LAST = 0.02, 0.25
"""Seconds after which a deaf sleeper looks: the first time, and when nothing comes for long."""


class Source(Protocol):
    """Something that rings."""

    wanted: bool

    @property
    def heard(self) -> bool:
        """From now on no ring is missed."""


class Channel:
    """What is PUBLISHed under one name, and whether it is heard."""

    def __init__(self, base: str, letter: str) -> None:
        self.base, self.letter = base, letter
        self.name = f"{base}:{letter}"
        self.wanted = False
        self.sent = False
        """SUBSCRIBE was sent, and no UNSUBSCRIBE after it."""
        self.unconfirmed = 0
        self.useless = 0

    @property
    def heard(self) -> bool:
        """From now on no ring is missed."""
        return self.sent and not self.unconfirmed


class Hearing(Protocol):
    """Knows of all bells of a store in one process."""

    def arm(self, bell: "HubBell", topic: str) -> None:
        """It is about to sleep. Returns once it will be rung, or it is clear that just now it cannot."""

    def leave(self, bell: "HubBell") -> None:
        """It is closed."""


class HubBell(Bell):
    """One sleeper's bell. Its topic is "" while it is not armed."""

    def __init__(self, hub: Hearing) -> None:
        super().__init__()
        self._hub = hub
        self.topic = ""
        self.sources: Sequence[Source] = ()
        self._look = LOOK_FIRST

    def arm(self, topic: str) -> None:
        self._hub.arm(self, topic)

    def disarm(self) -> None:
        self.topic = ""

    def ring(self) -> None:
        """Wakes who sleeps on it; the next ring is for others."""
        self.topic = ""
        self.poke()

    def wait(self, seconds: float, also: Sequence[int] = ()) -> bytes:
        if all(source.heard for source in self.sources):
            self._look = LOOK_FIRST
            return super().wait(seconds, also)
        self._look = min(self._look * 1.5, LOOK_LAST)
        return super().wait(min(seconds, self._look), also)

    def close(self) -> None:
        self._hub.leave(self)
        super().close()
