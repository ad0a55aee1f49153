"""Links to the parts of a cluster: where they lie, and how they follow their slots."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.errors import ConfigError, StoreUnavailable
from tarry.store.redis.link.base import Script, ScriptCall
from tarry.store.redis.link.cluster import SLOTS, ClusterNodes, ClusterPartLink, slot_of, tags
from tarry.store.redis.opening import cluster_of
from tarry.store.redis.url import parse_url
from tarry.store.rules.sleeper import WORK
from tests.servers.redis import RedisCluster, RedisServer, until
from tests.store.redis_moving import Slot
from tests.store.test_redis_sentinel import Ledger, heard

KEEP = Script("keep", "return redis.call('SADD', KEYS[1], ARGV[1])", repeatable=True)
BOTH = Script(
    "both",
    """
    redis.call('INCR', KEYS[1] .. ':a')
    if redis.call('EXISTS', KEYS[1] .. ':once') == 1 then redis.call('DEL', KEYS[1] .. ':once') end
    return redis.call('INCR', KEYS[1] .. ':b')
    """,
)


@pytest.fixture
def cluster(redis_cluster: RedisCluster) -> Iterator[ClusterNodes]:
    redis_cluster.empty()
    cluster = cluster_of(parse_url(f"{redis_cluster.url}?timeout=15s"))
    yield cluster
    cluster.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisCluster]:
    """One whose nodes the test may kill."""
    own = RedisCluster(tmp_path)
    own.start()
    yield own
    own.stop()


def part_at(cluster: ClusterNodes, node: RedisServer) -> ClusterPartLink:
    """A part whose slot that node has."""
    mine = [int(entry) for entry in _slots(node)]
    return next(ClusterPartLink(cluster, tag) for tag in tags("t", 16) if mine[0] <= slot_of(tag) <= mine[1])


def _slots(node: RedisServer) -> tuple[int, int]:
    line = next(line for line in node.call("CLUSTER", "NODES").splitlines() if "myself" in line)
    first, _, last = line.split()[8].partition("-")
    return int(first), int(last or first)


def test_parts_lie_at_equal_distances() -> None:
    for parts in (1, 3, 16, 100):
        named = tags("tarry", parts)
        assert len(set(named)) == parts
        assert [slot_of(tag) * parts // SLOTS for tag in named] == list(range(parts))
        assert all(tag.startswith(f"tarry.{number}") for number, tag in enumerate(named))
    assert slot_of("123456789") == 12739, "the server's own example"


def test_all_nodes_are_used(redis_cluster: RedisCluster, cluster: ClusterNodes) -> None:
    for tag in tags("t", 16):
        assert ClusterPartLink(cluster, tag).run(KEEP, [f"{{{tag}}}:set"], ["x"]) == 1
    sizes = Counter(int(node.call("DBSIZE")) for node in redis_cluster.masters())
    assert sum(size * nodes for size, nodes in sizes.items()) == 16
    assert max(sizes) <= 6


def test_one_node_named_is_enough(redis_cluster: RedisCluster) -> None:
    url = f"redis+cluster://127.0.0.1:1,127.0.0.1:{redis_cluster.nodes[-1].port}"
    one = cluster_of(parse_url(url))
    assert [ClusterPartLink(one, tag).command("PING") for tag in tags("t", 3)] == [b"PONG"] * 3
    one.close()


def test_what_no_cluster_is(redis_server: RedisServer) -> None:
    with pytest.raises(ConfigError, match="is a single server: begin the URL with redis://"):
        cluster_of(parse_url(f"redis+cluster://127.0.0.1:{redis_server.port}")).check()


def test_nobody_there() -> None:
    with pytest.raises(StoreUnavailable, match="no node of the cluster answers"):
        cluster_of(parse_url("redis+cluster://127.0.0.1:1,127.0.0.1:2")).check()


def test_sleepers_hear_whatever_node_it_was(cluster: ClusterNodes) -> None:
    prefixes = [f"{{{tag}}}" for tag in tags("t", 16)]
    sleeper = cluster.wakeup(prefixes)
    for tag in tags("t", 16):
        sleeper.listen(WORK)
        ClusterPartLink(cluster, tag).command("PUBLISH", f"{{{tag}}}:wakeup:w", "")
        assert sleeper.wait(15) == b"\0"
    sleeper.close()


@pytest.mark.chaos
def test_a_slot_moves_under_load(own: RedisCluster) -> None:
    """Calls wait while the slot is on its way, and follow it; no script is done by half, none twice, none lost."""
    cluster = cluster_of(parse_url(f"{own.url}?timeout=15s"))
    tag = tags("t", 1)[0]
    part = ClusterPartLink(cluster, tag)
    slot = Slot(own, slot_of(tag))
    with (
        Ledger(lambda number: part.run(KEEP, [f"{{{tag}}}"], [number])) as ledger,
        Ledger(lambda number: part.run_all([ScriptCall(BOTH, [f"{{{tag}}}"], [])] * 2)) as pairs,
    ):
        for _ in range(2):
            slot.begin()
            for _ in range(2):
                slot.carry(1)
            slot.finish()
            ledger.grows()
            pairs.grows()
    assert ledger.errors == pairs.errors == []
    assert {int(member) for member in part.command("SMEMBERS", f"{{{tag}}}")} == set(ledger.kept)
    both = [int(part.command("GET", f"{{{tag}}}:{name}")) for name in "ab"]
    assert both == [2 * len(pairs.kept)] * 2
    cluster.close()


def test_a_slot_that_stays_on_its_way(own: RedisCluster) -> None:
    """What cannot be waited out is said, and nothing was done."""
    cluster = cluster_of(parse_url(f"{own.url}?timeout=1s"))
    tag = tags("t", 1)[0]
    part = ClusterPartLink(cluster, tag)
    slot = Slot(own, slot_of(tag))
    part.run(BOTH, [f"{{{tag}}}"], [])
    slot.begin()
    slot.carry(1)
    with pytest.raises(StoreUnavailable, match="slot"):
        part.run(BOTH, [f"{{{tag}}}"], [])
    slot.carry(10)
    slot.finish()
    assert part.run(BOTH, [f"{{{tag}}}"], []) == 2
    cluster.close()


@pytest.mark.chaos
def test_a_master_dies_under_load(own: RedisCluster) -> None:
    """Its replica takes over, inside the time limit; what that had confirmed is there; other parts go on."""
    cluster = cluster_of(parse_url(f"{own.url}?timeout=15s&replicas=1"))
    dying, other = own.masters()[:2]
    part, elsewhere = part_at(cluster, dying), part_at(cluster, other)
    sleeper = cluster.wakeup([f"{{{part.tag}}}"])

    def keep(number: int) -> None:
        part.run(KEEP, [f"{{{part.tag}}}"], [number])
        if number > 500:
            part.wait_for_replicas(1, 0.5, False)

    with (
        Ledger(keep) as ledger,
        Ledger(lambda number: elsewhere.run(KEEP, [f"{{{elsewhere.tag}}}"], [number])) as calm,
    ):
        until(lambda: len(ledger.kept) > 600, "some that were confirmed")
        dying.kill()
        calm.grows()
        # Back too early it would be master still, and empty, as it kept nothing on disk.
        until(lambda: len(own.masters()) == 3, "its replica to take over")
        until(lambda: any("0 of 1" in str(error) for error in ledger.errors), "the new master to be alone")
        dying.start()
        ledger.grows()
    assert set(ledger.kept[500:]) <= {int(member) for member in part.command("SMEMBERS", f"{{{part.tag}}}")}
    assert calm.errors == []
    until(lambda: heard(sleeper), "the listeners to be connected")
    part.command("PUBLISH", f"{{{part.tag}}}:wakeup:w", "")
    assert sleeper.wait(15)
    sleeper.close()
    cluster.close()
