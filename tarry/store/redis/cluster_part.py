"""One part of what lies in a cluster: a hash tag, its slot, and the link to whoever has that.

While a slot is on its way to another node, a script that meets a key which is not there (or not there yet) would break
off in the middle. So each call names one key more, which never exists: then the server refuses the whole call before it
begins (TRYAGAIN), and it is sent again until the slot has arrived.
"""

import threading
from binascii import crc_hqx
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Protocol

from tarry.store.redis.link import Call, Script, Word
from tarry.store.redis.link_door import Access, Place
from tarry.store.redis.link_pool import Wires
from tarry.store.redis.link_refusal import PASSING, Lost, Refusal, Unreached
from tarry.store.redis.link_replicas import Quorum, confirmed
from tarry.store.redis.link_request import Patience, Request, asked, scripted, settled
from tarry.store.shared.bell import Bell

SLOTS = 16384


def slot_of(tag: str) -> int:
    """The hash slot of all keys with this tag in braces."""
    return crc_hqx(tag.encode(), 0) % SLOTS


def tags(prefix: str, parts: int) -> list[str]:
    """A hash tag for each part, each in its own of as many equal ranges of slots: `tarry.3`, or else the first of
    `tarry.3.1`, `tarry.3.2` and so on that falls there."""
    return [next(tag for tag in _names(f"{prefix}.{n}") if slot_of(tag) * parts // SLOTS == n) for n in range(parts)]


def _names(base: str) -> Iterator[str]:
    yield base
    yield from (f"{base}.{number}" for number in count(1))


class Nodes(Protocol):
    """Knows who has which slot."""

    url: str
    access: Access
    quorum: Quorum

    def at(self, slot: int, deadline: float) -> Wires:
        """Connections to the node that has the slot. Unreached."""

    def moved(self, slot: int, place: Place) -> None:
        """A node said so."""

    def doubt(self) -> None:
        """Something is not where it was."""

    def bell(self, channels: Sequence[str]) -> Bell:
        """A bell that hears these."""


class PartLink:
    """See `Link`: a link to the node that has one slot."""

    def __init__(self, cluster: Nodes, tag: str) -> None:
        self.tag = tag
        self.slot = slot_of(tag)
        # Not the cluster's own: it decides which jobs live in this part, whatever nodes were named.
        self.url = f"redis+cluster://{{{tag}}}"
        self.cluster = cluster
        self._patience = Patience(cluster.access.timeout)
        self._last = threading.local()
        self._absent = f"{{{tag}}}:absent"

    def run(self, script: Script, keys: Sequence[bytes | str], args: Sequence[Word]) -> Any:
        return self._settled([scripted(Call(script, keys, args), self._absent)])[0]

    def run_all(self, calls: Sequence[Call]) -> list[Any]:
        return self._settled([scripted(call, self._absent) for call in calls])

    def command(self, *words: Word) -> Any:
        return self._settled([Request(None, words)])[0]

    def replicated(self, count: int, seconds: float, to_disk: bool) -> None:
        confirmed(getattr(self._last, "used", None), self.cluster.quorum.at_least(count, to_disk), seconds)

    def bell(self, channel: str) -> Bell:
        return self.cluster.bell([channel])

    def close(self) -> None:
        """The connections belong to the cluster."""

    def _settled(self, requests: Sequence[Request]) -> list[Any]:
        return settled(requests, self._once, self._patience, lambda: f"{self.cluster.url} {{{self.tag}}}")

    def _once(self, requests: Sequence[Request], deadline: float) -> list[Any]:
        try:
            wires = self.cluster.at(self.slot, deadline)
            wire = wires.borrow(deadline)
            try:
                self._last.used = (wires, wire)
                answers = asked(wire, requests, deadline)
            finally:
                wires.give_back(wire)
        except (Unreached, Lost):
            self.cluster.doubt()
            raise
        self._heed(answers, wires.place)
        return answers

    def _heed(self, answers: Sequence[Any], place: Place) -> None:
        for answer in answers:
            if isinstance(answer, Refusal) and answer.code == "MOVED":
                host, _, port = answer.text.split(" ")[2].rpartition(":")
                self.cluster.moved(self.slot, Place(host or place.host, int(port)))
            elif isinstance(answer, Refusal) and answer.code in PASSING and answer.code != "TRYAGAIN":
                self.cluster.doubt()
