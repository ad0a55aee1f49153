"""Checks the stores: whether they answer and how fast, as seen from this host; and the facts they report.

Asks a store whether it is available, in a separate thread, so that a store that hangs blocks nobody.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from tarry.alert.condition import Condition, clean_line
from tarry.config.config import Alerts
from tarry.errors import StoreCorrupt, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from tarry.model.duration import SECOND, format_duration
from tarry.store.rules.base import Diagnostic, Store
from tarry.store.shards.identity import ACCEPT, StoreMemory
from tarry.store.shards.shard import Shard
from tarry.store.shards.sharded import ShardedStore


class Probe:
    """One question at a time: `ask`, then `wait`. `error` and `took` are the result of the last answered question."""

    def __init__(self, question: Callable[[], None]) -> None:
        self.error: StoreError | None = None
        self.took = 0.0
        """Seconds that the last good answer took."""
        self._question = question
        self._began = 0.0
        self._closed = False
        self._asked, self._answered = threading.Event(), threading.Event()
        self._answered.set()
        # daemon: a question that hangs must not delay the end of the process.
        threading.Thread(target=self._serve, name="tarry-alert-probe", daemon=True).start()

    def close(self) -> None:
        """Ends the thread once the current question is answered."""
        self._closed = True
        self._asked.set()

    def ask(self) -> None:
        """Asks, unless the last question is still open."""
        if self._answered.is_set():
            self._began = time.monotonic()
            self._answered.clear()
            self._asked.set()

    def wait(self, seconds: float) -> bool:
        """Waits until `seconds` after the question; whether there is an answer by then."""
        return self._answered.wait(max(0.0, self._began + seconds - time.monotonic()))

    @property
    def elapsed(self) -> float:
        """Seconds since the question."""
        return time.monotonic() - self._began

    def _serve(self) -> None:
        while self._asked.wait() and not self._closed:
            self._asked.clear()
            began, error = time.monotonic(), None
            try:
                self._question()
            except StoreError as why:
                error = why
            except Exception as why:
                # A fault of ours, or of a driver. Without an answer the store would count as one that hangs.
                log.exception("a store could not be asked whether it is available")
                error = StoreError(f"{type(why).__name__}: {why}")
            self.error = error
            if error is None:
                self.took = time.monotonic() - began
            # Last: the caller reads `error` and `took` after it.
            self._answered.set()


log = logging.getLogger("tarry.alerts")

UNAVAILABLE_FOR, SLOW_FOR = 5 * SECOND, 20 * SECOND
"""Microseconds that it must hold before it is reported."""
ANSWERS_WITHIN = 1.0
"""Seconds that a check waits for an answer; a store that has given none by then counts as unavailable."""
NO_ANSWER = "it has not answered yet"
FACTS_EVERY = 60.0
"""Seconds."""
MEMORY, REPLICAS, CLOCK = "memory", "replicas", "clock offset"
WATCHED = frozenset({"durability", "binary log", "eviction", "free disk", REPLICAS})
"""Facts that are reported when they contain advice."""

# The first class that fits counts, so the base class is last.
_KINDS: Sequence[tuple[type[StoreError], str]] = (
    (StoreUnavailable, "is away"),
    (StoreFull, "is full"),
    (StoreReadOnly, "can only be read"),
    (StoreCorrupt, "is damaged"),
    (StoreError, "does not do its work"),
)


def shards_of(store: Store) -> Sequence[Shard]:
    """The shards of this store; a single store is one shard."""
    return [shard for shard in all_shards(store) if not shard.is_removed]


def all_shards(store: Store) -> Sequence[Shard]:
    """The same with those that were removed; those that are added later come in there, too."""
    return store.shards if isinstance(store, ShardedStore) else (Shard.from_store(store),)


class StoreChecks:
    """Checks of one process. `check` asks the stores; all else returns what it found."""

    def __init__(self, shards: Sequence[Shard], alerts: Alerts, memory: StoreMemory | None = None) -> None:
        self._all, self._alerts, self._memory = shards, alerts, memory
        self._facts: dict[str, list[Diagnostic]] = {}
        self._facts_due: dict[str, float] = {}
        self._max_replicas: dict[str, float] = {}
        """The largest number of replicas that each store has had."""
        self.local_conditions: list[Condition] = []
        """What is wrong as seen from this host."""
        self._findings: dict[str, str] = {}
        """Which stores are not as this host remembers them."""
        self._probes: dict[Shard, Probe] = {}
        self._has_silent = False
        """A store has not answered yet."""

    @property
    def _shards(self) -> list[Shard]:
        """Those that are stores now: the list changes while all runs."""
        return [shard for shard in self._all if not shard.is_removed]

    def close(self, own: bool) -> None:
        """Ends the checks. own: also closes the stores."""
        # Closed stores do not go on to try connections.
        for probe in self._probes.values():
            probe.close()
        for shard in self._all if own else ():
            shard.close()

    @property
    def is_complete(self) -> bool:
        """All stores are available."""
        return not self._has_silent and not any(shard.away for shard in self._shards)

    @property
    def is_unreachable(self) -> bool:
        """No store is known to be available."""
        return self._has_silent or all(shard.away for shard in self._shards)

    def check(self) -> None:
        """Sends each store the cheapest query there is, and once in a while asks for its facts."""
        self._has_silent = False
        for shard in self._shards:
            # All are asked before the first wait, so that their times do not add up.
            self._probe(shard).ask()
        self.local_conditions = [condition for shard in self._shards for condition in self._check_shard(shard)]

    def _probe(self, shard: Shard) -> Probe:
        # Not by its URL: one that was removed and is added again is another one.
        if shard not in self._probes:
            self._probes[shard] = Probe(lambda: _ping(shard))
        return self._probes[shard]

    def shared_conditions(self) -> list[Condition]:
        """What is wrong with the stores, whichever host checks."""
        return [condition for shard in self._shards for condition in self._fact_conditions(shard.url)]

    def _check_shard(self, shard: Shard) -> Iterator[Condition]:
        probe = self._probe(shard)
        answered = probe.wait(ANSWERS_WITHIN)
        self._has_silent = self._has_silent or not answered
        # A store that was slow before is still slow, not unavailable.
        error = probe.error if answered else StoreUnavailable(NO_ANSWER) if probe.elapsed > 2 * probe.took else None
        if error is not None:
            # The store is away since the question, not since this line.
            yield replace(unavailable_condition(shard.url, error), ago=round(probe.elapsed * SECOND))
            return
        took = round(probe.took * SECOND)
        if answered:
            self._refresh_facts(shard)
        if 0 < self._alerts.latency < took:
            yield Condition(
                f"slow {shard.url}",
                f"{shard.url} is slow: it took {format_duration(took)} to answer",
                f"{shard.url} is fast again",
                "tarry check; then look at the server's load, its disk, and the network",
                holds=SLOW_FOR,
            )
        if finding := self._findings.get(shard.url):
            yield _changed_condition(shard.url, finding)
        for fact in self._facts.get(shard.url, ()):
            # The offset is that of this host's clock, so each host reports its own.
            if fact.name == CLOCK and fact.advice:
                yield _fact_condition(shard.url, fact)

    def _refresh_facts(self, shard: Shard) -> None:
        now = time.monotonic()
        if now < self._facts_due.get(shard.url, now):
            return
        # Before the question, so that a store that fails is not asked at each check.
        self._facts_due[shard.url] = now + FACTS_EVERY
        try:
            if self._memory is not None:
                self._findings[shard.url] = self._memory.watch(shard, shard.ask(lambda store: store.time()))
            facts = self._facts[shard.url] = shard.ask(lambda store: store.diagnostics())
        except (StoreError, OSError) as error:
            log.debug("%s does not say how it is: %s", shard.url, error)
            return
        replicas = max((fact.number for fact in facts if fact.name == REPLICAS), default=0)
        # The most so far: a store that never had replicas lacks none.
        self._max_replicas[shard.url] = max(replicas, self._max_replicas.get(shard.url, 0))

    def _fact_conditions(self, url: str) -> Iterator[Condition]:
        for fact in self._facts.get(url, ()):
            if fact.name in WATCHED and fact.advice:
                yield _fact_condition(url, fact)
            elif fact.name == MEMORY and fact.number >= self._alerts.memory:
                todo = fact.advice or "raise its maximum, or see what waits: tarry queues"
                yield Condition(f"memory {url}", f"{url} has used {fact.value}", f"{url} has memory again", todo)
            elif fact.name == REPLICAS and fact.number < self._max_replicas.get(url, 0):
                yield Condition(
                    f"replicas {url}",
                    f"{url} has {fact.number:.0f} replicas, and had {self._max_replicas[url]:.0f}",
                    f"{url} has its replicas again",
                    "look at the replica, and at INFO replication of the server",
                )


def unavailable_condition(url: str, error: StoreError) -> Condition:
    """The condition of a store that fails, by the class of the error."""
    how = next(words for kind, words in _KINDS if isinstance(error, kind))
    return Condition(
        f"away {url}",
        f"{url} {how}",
        f"{url} is there again",
        "tarry check; jobs wait and none is lost meanwhile",
        (clean_line(str(error)),),
        holds=UNAVAILABLE_FOR,
        calm=10 * SECOND,
        brief=f"{url} was away",
        soon=True,
    )


def _changed_condition(url: str, finding: str) -> Condition:
    return Condition(f"changed {url}", f"{url}: {finding}", f"{url} is accepted as it is", ACCEPT, soon=True)


def _ping(shard: Shard) -> None:
    shard.ask(lambda store: store.next_due())


def _fact_condition(url: str, fact: Diagnostic) -> Condition:
    over = f"{url}: {fact.name} is as it should be"
    return Condition(f"{fact.name} {url}", f"{url}: {fact.name}: {fact.value}", over, fact.advice)
