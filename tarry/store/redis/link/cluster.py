"""A Redis Cluster: which node has which hash slot, and links to the parts of a store, which lie in different slots.

Each part is a whole store whose keys share one slot. One queue uses all parts, and so all nodes.
"""

import random
import threading
import time
from binascii import crc_hqx
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from tarry.errors import ConfigError, StoreAway, StoreError, StoreUnavailable
from tarry.store.redis.link.access import Access, ServerAddress
from tarry.store.redis.link.connection import RedisConnection
from tarry.store.redis.link.pool import RedisPool
from tarry.store.redis.link.redis_errors import TRANSIENT, ErrorReply, ReplyLost, error_of
from tarry.store.redis.link.replicas import Quorum
from tarry.store.redis.link.request import Request, RetryingLink, send_requests
from tarry.store.redis.link.wakeup import redis_hub
from tarry.store.rules.sleeper import Wakeup
from tarry.store.shared.wakeup.hub import WakeupHub

NODE_TIMEOUT = 1.0
"""Seconds for one node to tell which node has which slot; then the next node is asked."""


SLOTS = 16384


def slot_of(tag: str) -> int:
    """The hash slot of all keys with this tag in braces."""
    return crc_hqx(tag.encode(), 0) % SLOTS


def tags(prefix: str, parts: int) -> list[str]:
    """A hash tag for each part, in a range of slots of its own; the ranges are equal. The tag is `tarry.3`, or else the
    first of `tarry.3.1`, `tarry.3.2` and so on that falls into the range."""
    # Equal ranges: a cluster that shares out its slots evenly then has as many parts on each node.
    return [next(tag for tag in _names(f"{prefix}.{n}") if slot_of(tag) * parts // SLOTS == n) for n in range(parts)]


def _names(base: str) -> Iterator[str]:
    yield base
    yield from (f"{base}.{number}" for number in count(1))


class ClusterNodes:
    """Knows which node has which slot; the parts share the connections to the nodes."""

    def __init__(self, url: str, seeds: Sequence[ServerAddress], access: Access, quorum: Quorum) -> None:
        self.url = url
        self.access = access
        self.quorum = quorum
        self._nodes = list(seeds)
        self._ranges: list[tuple[int, int, ServerAddress]] = []
        self._moved: dict[int, ServerAddress] = {}
        self._is_doubtful = True
        self._pools: dict[ServerAddress, RedisPool] = {}
        self._lock = threading.Lock()
        self._hubs: dict[tuple[str, ...], WakeupHub] = {}

    def check(self) -> None:
        """Asks a node, so that a mistake shows early. ConfigError, StoreError, StoreUnavailable."""
        self.pool_for_slot(0, time.monotonic() + self.access.timeout)

    def pool_for_slot(self, slot: int, deadline: float) -> RedisPool:
        """Connections to the node that has the slot. StoreAway: no node answers, or none has the slot."""
        with self._lock:
            if self._is_doubtful:
                self._refresh(deadline)
            # What a node said since the last refresh is newer than the ranges.
            address = self._moved.get(slot) or self._address(slot)
            if address not in self._pools:
                self._pools[address] = RedisPool(address, self.access)
            return self._pools[address]

    def note_move(self, slot: int, address: ServerAddress) -> None:
        """Notes that a node said that the slot is at this address now."""
        with self._lock:
            self._moved[slot] = address

    def doubt(self) -> None:
        """Something is not where it was: the next call asks the nodes again."""
        self._is_doubtful = True

    def wakeup(self, prefixes: Sequence[str]) -> Wakeup:
        """A new sleeper on these parts."""
        # One connection to any node is enough: each node passes on to all others what is PUBLISHed there.
        with self._lock:
            hub = self._hubs.get(tuple(prefixes))
            if hub is None:
                hub = redis_hub(self._connect_any, self.access.timeout, prefixes, in_line=False)
                self._hubs[tuple(prefixes)] = hub
        return hub.wakeup()

    def close(self) -> None:
        """Closes all connections."""
        for hub in self._hubs.values():
            hub.close()
        for pool in self._pools.values():
            pool.close()

    def _address(self, slot: int) -> ServerAddress:
        for first, last, address in self._ranges:
            if first <= slot <= last:
                return address
        self._is_doubtful = True
        raise StoreAway(f"{self.url}: no node serves slot {slot}; CLUSTER INFO tells more")

    def _refresh(self, deadline: float) -> None:
        """Asks the nodes, one after the other, which node has which slots."""
        troubles = []
        # In random order: else all processes of all hosts would ask the first node.
        for address in random.sample(self._nodes, len(self._nodes)):
            try:
                slots = self._ask_slots(address, min(deadline, time.monotonic() + NODE_TIMEOUT))
            except StoreError as error:
                troubles.append(str(error))
                continue
            self._learn(address, slots)
            return
        raise StoreAway(f"no node of the cluster answers: {'; '.join(troubles)}")

    def _ask_slots(self, address: ServerAddress, deadline: float) -> list[Any]:
        pool = self._pools.setdefault(address, RedisPool(address, self.access))
        connection = pool.borrow(deadline)
        try:
            (answer,) = connection.ask([("CLUSTER", "SLOTS")], deadline)
        finally:
            pool.give_back(connection)
        if isinstance(answer, ErrorReply):
            raise error_of(answer, str(address))
        return answer  # type: ignore[no-any-return]

    def _learn(self, source: ServerAddress, slots: Sequence[Any]) -> None:
        ranges = [(first, last, [_node_address(node, source) for node in nodes]) for first, last, *nodes in slots]
        if not ranges:
            raise StoreAway(f"{source} knows of no slots; CLUSTER INFO tells more")
        self._ranges = [(first, last, nodes[0]) for first, last, nodes in ranges]
        self._moved.clear()
        now = {address for _, _, nodes in ranges for address in nodes}
        # The nodes of the URL stay: they may be the only ones left if the others come back at other addresses. Bounded,
        # since old addresses stay in the list.
        self._nodes = [*now, *(address for address in self._nodes if address not in now)][: 2 * len(now) + 8]
        self._is_doubtful = False

    def _connect_any(self, deadline: float) -> RedisConnection:
        """A connection for wake-up, to any node that lives."""
        trouble: StoreError = StoreUnavailable(f"{self.url}: no node is known")
        for address in random.sample(self._nodes, len(self._nodes)):
            try:
                return RedisConnection(address, self.access, min(deadline, time.monotonic() + NODE_TIMEOUT))
            except StoreError as error:
                trouble = error
            except ConfigError as error:
                # As with any other error of one node: another node may do.
                trouble = StoreUnavailable(str(error))
        raise trouble


def _node_address(node: Sequence[Any], source: ServerAddress) -> ServerAddress:
    """The address of a node in an answer of `source`."""
    # A node may not know its own name: then it has the one by which we asked it.
    host = (node[0] or b"").decode()
    return ServerAddress(host if host not in ("", "?") else source.host, int(node[1]))


class ClusterPartLink(RetryingLink):
    """A `RedisLink` to the node that has one slot."""

    def __init__(self, cluster: ClusterNodes, tag: str) -> None:
        # Each call names one key more, which never exists. While the slot is on its way to another node, a script that
        # meets a missing key would break off in the middle. With this key the server refuses the whole call before it
        # begins (TRYAGAIN), and it is sent again until the slot has arrived.
        super().__init__(cluster.access.timeout, cluster.quorum, f"{{{tag}}}:absent")
        self.tag = tag
        self.slot = slot_of(tag)
        # Not the cluster's own URL: this one decides which jobs live in this part, whatever nodes the URL named.
        self.url = f"redis+cluster://{{{tag}}}"
        self.cluster = cluster

    def wakeup(self, prefix: str) -> Wakeup:
        return self.cluster.wakeup([prefix])

    def worker_wakeup(self, prefix: str) -> Wakeup:
        # In a cluster there are no lines (`RedisTransport`).
        return self.wakeup(prefix)

    def close(self) -> None:
        """Nothing: the connections belong to the cluster."""

    def _shown(self) -> str:
        return f"{self.cluster.url} {{{self.tag}}}"

    def _send_once(self, requests: Sequence[Request], deadline: float) -> list[Any]:
        try:
            pool = self.cluster.pool_for_slot(self.slot, deadline)
            connection = pool.borrow(deadline)
            try:
                self._last.used = (pool, connection)
                answers = send_requests(connection, requests, deadline)
            finally:
                pool.give_back(connection)
        except (StoreAway, ReplyLost):
            self.cluster.doubt()
            raise
        self._note_moves(answers, pool.address)
        return answers

    def _note_moves(self, answers: Sequence[Any], address: ServerAddress) -> None:
        for answer in answers:
            if isinstance(answer, ErrorReply) and answer.code == "MOVED":
                host, _, port = answer.text.split(" ")[2].rpartition(":")
                self.cluster.note_move(self.slot, ServerAddress(host or address.host, int(port)))
            # TRYAGAIN: the slot is still there, so there is nothing to ask the nodes.
            elif isinstance(answer, ErrorReply) and answer.code in TRANSIENT and answer.code != "TRYAGAIN":
                self.cluster.doubt()
