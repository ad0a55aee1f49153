"""A Redis Cluster: who has which hash slot, and one store made of parts that lie in different slots.

Each part is a whole store whose keys share one slot; the parts' slots lie at equal distances, so that a cluster whose
slots are shared out evenly has as many parts on each node, and one queue uses them all.
"""

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from tarry.errors import ConfigError, StoreError, StoreUnavailable
from tarry.store.redis.bell_hub import Hub
from tarry.store.redis.cluster_part import PartLink
from tarry.store.redis.link_door import Access, Place
from tarry.store.redis.link_pool import Wires
from tarry.store.redis.link_refusal import Refusal, Unreached, error_of
from tarry.store.redis.link_replicas import Quorum
from tarry.store.redis.link_wire import Wire
from tarry.store.shared.bell import Bell

PATIENCE = 1.0
"""Seconds that one node may take to tell who has which slot, before the next is asked."""


class Cluster:
    """Knows the nodes, and shares connections to them among the parts."""

    def __init__(self, url: str, seeds: Sequence[Place], access: Access, quorum: Quorum) -> None:
        self.url = url
        self.access = access
        self.quorum = quorum
        self._nodes = list(seeds)
        self._ranges: list[tuple[int, int, Place]] = []
        self._moved: dict[int, Place] = {}
        self._doubted = True
        self._pools: dict[Place, Wires] = {}
        self._lock = threading.Lock()
        self._hubs: dict[tuple[str, ...], Hub] = {}

    def prove(self) -> None:
        """Looks who is there. ConfigError, StoreError, StoreUnavailable."""
        self.at(0, time.monotonic() + self.access.timeout)

    def part(self, tag: str) -> PartLink:
        """A link to whoever has the slot of that tag."""
        return PartLink(self, tag)

    def at(self, slot: int, deadline: float) -> Wires:
        """Connections to the node that has the slot. Unreached: nobody tells, or nobody has it."""
        with self._lock:
            if self._doubted:
                self._look(deadline)
            place = self._moved.get(slot) or self._place(slot)
            if place not in self._pools:
                self._pools[place] = Wires(place, self.access)
            return self._pools[place]

    def moved(self, slot: int, place: Place) -> None:
        """A node said so."""
        with self._lock:
            self._moved[slot] = place

    def doubt(self) -> None:
        """Something is not where it was."""
        self._doubted = True

    def bell(self, channels: Sequence[str]) -> Bell:
        """A bell that hears these: each node passes on to all others what is PUBLISHed there."""
        with self._lock:
            hub = self._hubs.setdefault(tuple(channels), Hub(self._any, self.access.timeout, channels, in_turn=False))
        return hub.bell()

    def close(self) -> None:
        """Closes all connections."""
        for hub in self._hubs.values():
            hub.close()
        for pool in self._pools.values():
            pool.close()

    def _place(self, slot: int) -> Place:
        for first, last, place in self._ranges:
            if first <= slot <= last:
                return place
        self._doubted = True
        raise Unreached(f"{self.url}: no node serves slot {slot}; CLUSTER INFO tells more")

    def _look(self, deadline: float) -> None:
        """Asks the nodes, one after the other, who has which slots."""
        troubles = []
        for place in random.sample(self._nodes, len(self._nodes)):
            try:
                told = self._told(place, min(deadline, time.monotonic() + PATIENCE))
            except StoreError as error:
                troubles.append(str(error))
                continue
            self._learn(place, told)
            return
        raise Unreached(f"no node of the cluster answers: {'; '.join(troubles)}")

    def _told(self, place: Place, deadline: float) -> list[Any]:
        pool = self._pools.setdefault(place, Wires(place, self.access))
        wire = pool.borrow(deadline)
        try:
            (answer,) = wire.ask([("CLUSTER", "SLOTS")], deadline)
        finally:
            pool.give_back(wire)
        if isinstance(answer, Refusal):
            raise error_of(answer, str(place))
        return answer  # type: ignore[no-any-return]

    def _learn(self, teller: Place, told: Sequence[Any]) -> None:
        ranges = [(first, last, [_known(node, teller) for node in nodes]) for first, last, *nodes in told]
        if not ranges:
            raise Unreached(f"{teller} knows of no slots; CLUSTER INFO tells more")
        self._ranges = [(first, last, nodes[0]) for first, last, nodes in ranges]
        self._moved.clear()
        now = {place for _, _, nodes in ranges for place in nodes}
        # Those of the URL too: they may be all that is left when the others come back elsewhere.
        self._nodes = [*now, *(place for place in self._nodes if place not in now)][: 2 * len(now) + 8]
        self._doubted = False

    def _any(self, deadline: float) -> Wire:
        """A connection for the bells, to any node that lives."""
        trouble: StoreError = StoreUnavailable(f"{self.url}: no node is known")
        for place in random.sample(self._nodes, len(self._nodes)):
            try:
                return Wire(place, self.access, min(deadline, time.monotonic() + PATIENCE))
            except StoreError as error:
                trouble = error
            except ConfigError as error:
                trouble = StoreUnavailable(str(error))
        raise trouble


def _known(node: Sequence[Any], teller: Place) -> Place:
    """A node may not know its own name: then it is the one that we called it by."""
    host = (node[0] or b"").decode()
    return Place(host if host not in ("", "?") else teller.host, int(node[1]))
