"""Moving a hash slot from node to node, step by step, as `redis-cli --cluster reshard` does it."""

from tests.servers.redis import RedisCluster, RedisServer


class Slot:
    """One slot of a cluster: `begin`, `carry` its keys, `finish`; then it may be moved on."""

    def __init__(self, cluster: RedisCluster, slot: int) -> None:
        self._cluster, self._slot = cluster, str(slot)
        masters = cluster.masters()
        self.home = next(node for node in masters if _has(node, slot))
        self._others = [node for node in masters if node is not self.home]
        self.target = self._others[0]

    def begin(self) -> None:
        """From now on it is on its way."""
        self.target.call("CLUSTER", "SETSLOT", self._slot, "IMPORTING", _id(self.home))
        self.home.call("CLUSTER", "SETSLOT", self._slot, "MIGRATING", _id(self.target))

    def carry(self, most: int) -> None:
        """So many keys more."""
        for key in self.home.call("CLUSTER", "GETKEYSINSLOT", self._slot, str(most)).split():
            moved = self.home.call("MIGRATE", "127.0.0.1", str(self.target.port), key, "0", "5000")
            assert moved == "OK", moved

    def finish(self) -> None:
        """All that is left, and then everybody is told."""
        while self.home.call("CLUSTER", "COUNTKEYSINSLOT", self._slot) != "0":
            self.carry(10)
        for node in (self.target, self.home, *self._others[1:]):
            assert node.call("CLUSTER", "SETSLOT", self._slot, "NODE", _id(self.target)) == "OK"
        self.home, self.target = self.target, self.home
        self._others = [self.target, *[node for node in self._others if node is not self.home]]


def _id(node: RedisServer) -> str:
    return node.call("CLUSTER", "MYID")


def _has(node: RedisServer, slot: int) -> bool:
    line = next(line for line in node.call("CLUSTER", "NODES").splitlines() if "myself" in line)
    for words in line.split()[8:]:
        first, _, last = words.partition("-")
        if not words.startswith("[") and int(first) <= slot <= int(last or first):
            return True
    return False
