"""Who watches a soak: samples processes and the store, and writes down what the store says before it deletes it."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tarry.client.bulk import find_pages
from tarry.errors import StoreError
from tarry.model.job import FINISHED
from tarry.store.opening import open_store
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Store
from tarry.testing.history_check import FinalState, FlowEnded
from tarry.testing.ledger import Ledger, read_flows
from tests.soak.series import FEW, MEMORY, ROWS, SIZE, Bounds, SeriesSet
from tests.soak.soak_system import SoakStorm

SAMPLED_EVERY = 5.0
OBSERVED_EVERY = 20.0
"""What is finished is kept for much longer."""
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

Figure = tuple[str, Bounds, float]
"""Name, what of it is material, value."""


class Watcher(threading.Thread):
    """Samples into `series`, and writes into the ledger `observed`, until it is stopped."""

    def __init__(self, storm: SoakStorm) -> None:
        super().__init__(daemon=True)
        self.series = SeriesSet()
        self.failures = 0
        """How often the store did not answer."""
        self.is_sampling = True
        self._storm, self._over = storm, threading.Event()
        self._ledger = Ledger(storm.directory / "observed")
        self._known, self._flows = set[bytes](), set[str]()
        self._store: Store | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._watch()
        except Exception as error:
            self._error = error

    def _watch(self) -> None:
        observed = 0.0
        while not self._over.wait(SAMPLED_EVERY):
            if self.is_sampling:
                self._add(processes(self._storm))
                self._ask(self._sample_store)
            if time.monotonic() - observed >= OBSERVED_EVERY:
                observed = time.monotonic()
                self._ask(self._observe)

    def end(self) -> None:
        """Looks once more at what the store says, and ends. Raises what has broken it off."""
        self._over.set()
        self.join()
        if self._error is not None:
            raise self._error
        with self._storm.store() as store:
            self._observe(store)
        if self._store is not None:
            self._store.close()

    def _ask(self, question: Any) -> None:
        """A store that is away is asked again the next time."""
        try:
            if self._store is None:
                self._store = open_store(list(self._storm.urls))
            question(self._store)
        except StoreError:
            self.failures += 1

    def _add(self, figures: Iterator[Figure]) -> None:
        now = time.monotonic()
        for name, bounds, value in figures:
            self.series.add(name, bounds, now, value)

    def _sample_store(self, store: Store) -> None:
        self._add(iter(list(store_figures(store))))

    def _observe(self, store: Store) -> None:
        """Flows before jobs: the nodes of a flow that is read are there still."""
        self._observe_flows(store)
        finished = [job for jobs in find_pages(store, Query(states=tuple(FINISHED))) for job in jobs]
        new = [job for job in finished if job.id not in self._known]
        self._known = {job.id for job in finished}
        if new:
            self._ledger.write(*(FinalState(ids.text(job.id), job.state, job.epoch) for job in new))

    def _observe_flows(self, store: Store) -> None:
        nodes = [node for node in read_flows(store) if node.flow not in self._flows]
        roots = store.get([ids.parse(flow) for flow in {node.flow for node in nodes}])
        ended = {ids.text(root.id): root for root in roots if root is not None and root.state.finished}
        self._flows |= ended.keys()
        events = [FlowEnded(id, root.state_since, root.state) for id, root in ended.items()]
        if ended:
            self._ledger.write(*events, *(node for node in nodes if node.flow in ended))


def processes(storm: SoakStorm) -> Iterator[Figure]:
    """Memory, descriptors and threads of each process, and the files of the directory."""
    found = {storm.master.pid: "master", storm.producer_process.pid: "producer"}
    for role in ("worker", "keeper", "server"):
        found |= dict.fromkeys(storm.pids(role), role)
    for pid, role in found.items():
        # It may end meanwhile.
        with contextlib.suppress(OSError):
            name, place = f"{role} {pid}", Path(f"/proc/{pid}")
            memory = int((place / "statm").read_text().split()[1]) * _PAGE
            yield from [
                (f"memory of {name}", MEMORY, memory),
                (f"descriptors of {name}", FEW, len(list((place / "fd").iterdir()))),
                (f"threads of {name}", FEW, len(list((place / "task").iterdir()))),
            ]
    yield "files of the directory", FEW, sum(len(files) for _, _, files in os.walk(storm.directory))


def store_figures(store: Any) -> Iterator[Figure]:
    """Rows of each table, or keys, and how large it is; of shards together. StoreError."""
    shards = [shard.store for shard in store.shards] if hasattr(store, "shards") else [store]
    sums: dict[str, Figure] = {}
    for each in shards:
        for name, bounds, value in _of_engine(each):
            sums[name] = (name, bounds, value + (sums[name][2] if name in sums else 0))
    yield from sums.values()


def _of_engine(store: Any) -> Iterator[Figure]:
    engine = type(store).__module__.split(".")[2]
    if engine == "redis":
        yield from _of_redis(store)
        return
    for (table,) in store._rows(_TABLES[engine]):
        ((count,),) = store._rows(f"SELECT count(*) FROM {store._sql.tables}{table.removeprefix('tarry_')}")
        yield f"rows of {table.removeprefix('tarry_')}", ROWS, count
    ((size,),) = store._rows(_SIZES[engine])
    yield "size of the database", SIZE, size


_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'tarry%'",
    "postgres": "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'tarry'",
    "mysql": "SELECT table_name FROM information_schema.tables WHERE table_schema = database()",
}
_SIZES = {
    "sqlite": "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
    "postgres": "SELECT pg_database_size(current_database())",
    "mysql": "SELECT sum(data_length + index_length) FROM information_schema.tables WHERE table_schema = database()",
}


def _of_redis(store: Any) -> Iterator[Figure]:
    lines = store._link.command("INFO").decode().splitlines()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    yield "keys", ROWS, int(store._link.command("DBSIZE"))
    yield "memory of its data", SIZE, int(facts["used_memory_dataset"])
    yield "memory of the store's server", SIZE, int(facts["used_memory"])
    yield "connections to the store", FEW, int(facts["connected_clients"])


def seconds_of_cpu(pid: int) -> float:
    """What a process and its children, also those that have ended, have used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICK + sum(seconds_of_cpu(int(child)) for child in children)
