"""How the stores do: there or not and how fast, as this host sees it; and what they say of themselves."""

import logging
import time
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from tarry.alert.condition import Condition, plain
from tarry.alert.probe import Probe
from tarry.config import Alerts
from tarry.errors import StoreCorrupt, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from tarry.model.duration import SECOND, spoken
from tarry.store.base import Fact, Store
from tarry.store.shards.shard import Shard
from tarry.store.shards.sharded import ShardedStore

log = logging.getLogger("tarry.alerts")

AWAY_FOR, SLOW_FOR = 5 * SECOND, 20 * SECOND
"""Microseconds until it is told."""
ANSWERS_WITHIN = 1.0
"""Seconds for which a look waits for an answer. Who has none by then does not seem to be there."""
NO_ANSWER = "it has not answered yet"
FACTS_EVERY = 60.0
"""Seconds."""
MEMORY, REPLICAS, CLOCK = "memory", "replicas", "clock offset"
WATCHED = frozenset({"durability", "binary log", "eviction", "free disk", REPLICAS})
"""Facts whose advice is worth a message."""

_KINDS: Sequence[tuple[type[StoreError], str]] = (
    (StoreUnavailable, "is away"),
    (StoreFull, "is full"),
    (StoreReadOnly, "can only be read"),
    (StoreCorrupt, "is damaged"),
    (StoreError, "does not do its work"),
)


def parts(store: Store) -> tuple[Shard, ...]:
    """The stores that make up this one, each asked by itself."""
    return store.shards if isinstance(store, ShardedStore) else (Shard.of(store),)


class Stores:
    """Of one process. `look` asks, the rest tells what was seen then."""

    def __init__(self, shards: Sequence[Shard], alerts: Alerts) -> None:
        self._shards, self._alerts = shards, alerts
        self._facts: dict[str, list[Fact]] = {}
        self._asked: dict[str, float] = {}
        self._most: dict[str, float] = {}
        """The most replicas that each has had."""
        self.here: list[Condition] = []
        """What is wrong from where this host stands."""
        self._probes: dict[str, Probe] = {}
        self._silent = False
        """One has not answered yet."""

    def close(self, own: bool) -> None:
        """Nothing is asked any more. own: nor are the stores in use, so that none is tried again."""
        for probe in self._probes.values():
            probe.close()
        for shard in self._shards if own else ():
            shard.close()

    @property
    def whole(self) -> bool:
        """All are there."""
        return not self._silent and not any(shard.away for shard in self._shards)

    @property
    def none(self) -> bool:
        """None of them is, as far as it is known."""
        return self._silent or all(shard.away for shard in self._shards)

    def look(self) -> None:
        """Asks each for the least that it can answer, and now and then for its facts."""
        self._silent = False
        for shard in self._shards:
            self._probe(shard).ask()
        self.here = [condition for shard in self._shards for condition in self._look(shard)]

    def _probe(self, shard: Shard) -> Probe:
        if shard.url not in self._probes:
            self._probes[shard.url] = Probe(lambda: _ask(shard))
        return self._probes[shard.url]

    def of_all(self) -> list[Condition]:
        """What is wrong with the stores whoever looks."""
        return [condition for shard in self._shards for condition in self._told(shard.url)]

    def _look(self, shard: Shard) -> Iterator[Condition]:
        probe = self._probe(shard)
        answered = probe.wait(ANSWERS_WITHIN)
        self._silent = self._silent or not answered
        # One that has been slow before is only slow.
        error = probe.error if answered else StoreUnavailable(NO_ANSWER) if probe.ago > 2 * probe.took else None
        if error is not None:
            yield replace(away(shard.url, error), ago=round(probe.ago * SECOND))
            return
        took = round(probe.took * SECOND)
        if answered:
            self._ask_facts(shard)
        if 0 < self._alerts.latency < took:
            yield Condition(
                f"slow {shard.url}",
                f"{shard.url} is slow: it took {spoken(took)} to answer",
                f"{shard.url} is fast again",
                "tarry check; then look at the server's load, its disk, and the network",
                holds=SLOW_FOR,
            )
        for fact in self._facts.get(shard.url, ()):
            if fact.name == CLOCK and fact.advice:
                yield _of_fact(shard.url, fact)

    def _ask_facts(self, shard: Shard) -> None:
        now = time.monotonic()
        if now < self._asked.get(shard.url, now):
            return
        self._asked[shard.url] = now + FACTS_EVERY
        try:
            facts = self._facts[shard.url] = shard.ask(lambda store: store.facts())
        except (StoreError, OSError) as error:
            log.debug("%s does not say how it is: %s", shard.url, error)
            return
        replicas = max((fact.number for fact in facts if fact.name == REPLICAS), default=0)
        self._most[shard.url] = max(replicas, self._most.get(shard.url, 0))

    def _told(self, url: str) -> Iterator[Condition]:
        for fact in self._facts.get(url, ()):
            if fact.name in WATCHED and fact.advice:
                yield _of_fact(url, fact)
            elif fact.name == MEMORY and fact.number >= self._alerts.memory:
                todo = fact.advice or "raise its maximum, or see what waits: tarry queues"
                yield Condition(f"memory {url}", f"{url} has used {fact.value}", f"{url} has memory again", todo)
            elif fact.name == REPLICAS and fact.number < self._most.get(url, 0):
                yield Condition(
                    f"replicas {url}",
                    f"{url} has {fact.number:.0f} replicas, and had {self._most[url]:.0f}",
                    f"{url} has its replicas again",
                    "look at the replica, and at INFO replication of the server",
                )


def away(url: str, error: StoreError) -> Condition:
    """It did not answer, or not as it should: by the class of the error, whatever its text."""
    how = next(words for kind, words in _KINDS if isinstance(error, kind))
    return Condition(
        f"away {url}",
        f"{url} {how}",
        f"{url} is there again",
        "tarry check; jobs wait and none is lost meanwhile",
        (plain(str(error)),),
        holds=AWAY_FOR,
        calm=10 * SECOND,
        brief=f"{url} was away",
        soon=True,
    )


def _ask(shard: Shard) -> None:
    shard.ask(lambda store: store.next_due())


def _of_fact(url: str, fact: Fact) -> Condition:
    over = f"{url}: {fact.name} is as it should be"
    return Condition(f"{fact.name} {url}", f"{url}: {fact.name}: {fact.value}", over, fact.advice)
