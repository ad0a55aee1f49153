"""A link to one server, wherever it is just now: at a fixed place, or where sentinels say that the master is."""

import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from tarry.store.redis.bell_hub import Hub
from tarry.store.redis.link import Call, Script, Word
from tarry.store.redis.link_door import Access, Place
from tarry.store.redis.link_pool import Wires
from tarry.store.redis.link_refusal import Lost, Refusal, Unreached
from tarry.store.redis.link_replicas import Quorum, confirmed
from tarry.store.redis.link_request import Patience, Request, asked, scripted, settled
from tarry.store.redis.link_wire import Wire
from tarry.store.shared.bell import Bell


class Finder(Protocol):
    """Knows where the server is."""

    moves: bool
    """It may be elsewhere tomorrow; then a server that is a replica is not the one."""

    def find(self, deadline: float) -> Place:
        """Where it is. Unreached: nobody can say."""

    def doubt(self, place: Place) -> None:
        """It was not there."""


class Fixed:
    """Always there."""

    moves = False

    def __init__(self, place: Place) -> None:
        self._place = place

    def find(self, deadline: float) -> Place:
        return self._place

    def doubt(self, place: Place) -> None:
        """Where else?"""


class ServerLink:
    """See `Link`. Opens nothing before it is asked."""

    def __init__(self, url: str, finder: Finder, access: Access, quorum: Quorum = Quorum()) -> None:  # noqa: B008
        self.url = url
        self._quorum = quorum
        self._finder, self._access = finder, access
        self._lock = threading.Lock()
        self._wires: Wires | None = None
        self._patience = Patience(access.timeout)
        self._last = threading.local()
        self._hubs: dict[str, Hub] = {}

    def run(self, script: Script, keys: Sequence[bytes | str], args: Sequence[Word]) -> Any:
        return self._settled([scripted(Call(script, keys, args))])[0]

    def run_all(self, calls: Sequence[Call]) -> list[Any]:
        return self._settled([scripted(call) for call in calls])

    def command(self, *words: Word) -> Any:
        return self._settled([Request(None, words)])[0]

    def replicated(self, count: int, seconds: float, to_disk: bool) -> None:
        confirmed(getattr(self._last, "used", None), self._quorum.at_least(count, to_disk), seconds)

    def bell(self, channel: str) -> Bell:
        with self._lock:
            if channel not in self._hubs:
                self._hubs[channel] = Hub(self._connected, self._access.timeout, [channel], in_turn=True)
        return self._hubs[channel].bell()

    def close(self) -> None:
        for hub in self._hubs.values():
            hub.close()
        if self._wires is not None:
            self._wires.close()

    def prove(self) -> None:
        """Connects, to tell early of what is wrong. ConfigError, StoreError, StoreUnavailable."""
        self._once([Request(None, ("PING",))], time.monotonic() + self._access.timeout)

    def _settled(self, requests: Sequence[Request]) -> list[Any]:
        return settled(requests, self._once, self._patience, lambda: self.url)

    def _once(self, requests: Sequence[Request], deadline: float) -> list[Any]:
        wires = self._there(deadline)
        try:
            wire = wires.borrow(deadline)
            try:
                self._check(wire)
                self._last.used = (wires, wire)
                return self._still_master(wires, asked(wire, requests, deadline))
            finally:
                wires.give_back(wire)
        except (Unreached, Lost):
            self._finder.doubt(wires.place)
            raise

    def _there(self, deadline: float) -> Wires:
        place, wires = self._finder.find(deadline), self._wires
        if wires is not None and wires.place is place:
            return wires
        with self._lock:
            if self._wires is None or self._wires.place != place:
                if self._wires is not None:
                    self._wires.close()
                self._wires = Wires(place, self._access)
            return self._wires

    def _check(self, wire: Wire) -> None:
        if self._finder.moves and wire.role != "master":
            wire.close()
            raise Unreached(f"{wire.place} is a replica now; send it again")

    def _still_master(self, wires: Wires, answers: list[Any]) -> list[Any]:
        """Where a server was made a replica behind our back, the refusals say what passes."""
        if self._finder.moves and any(map(_read_only, answers)):
            wires.close()
            self._finder.doubt(wires.place)
            return [Refusal("MASTERDOWN it is a replica now") if _read_only(answer) else answer for answer in answers]
        return answers

    def _connected(self, deadline: float) -> Wire:
        """A connection for the bells alone."""
        place = self._finder.find(deadline)
        try:
            wire = Wire(place, self._access, deadline)
            self._check(wire)
            return wire
        except Unreached:
            self._finder.doubt(place)
            raise


def _read_only(answer: Any) -> bool:
    return isinstance(answer, Refusal) and answer.code == "READONLY"
