"""What is still in a store though nothing needs it any more: looked for at the end of a run."""

from collections.abc import Iterator
from typing import Any

from tarry.store.rules import ids
from tarry.store.rules.base import Query, Store
from tarry.store.rules.kept_places import PREFIX
from tarry.testing.history_events import Leftover

_MOST = 1000
"""How many are listed of each kind."""
EMPTY_TABLES = {
    "sqlite": ("job", "label", "lane", "journal", "flow", "gate", "signal", "awaiting"),
    "postgres": ("job", "label", "lane", "journal", "flow", "gate", "signal", "awaiting"),
    "mysql": (
        "job", "ready", "laned", "scheduled", "running", "finished", "key", "open", "closed", "journal", "flow", "gate",
        "signal", "awaiting", "label",
    ),
}  # fmt: skip
"""By engine, the tables that have no row once no job is kept."""

LASTING_KEYS = (
    "kinds", "schema", "wake:", "holds", "sum", "limits", "levels", "turns", "leases", "paused", "cell",
    "endednodes",
)  # fmt: skip
"""What the names of keys in Redis begin with that are not about jobs, or of which there is one a queue or task."""


def leftovers(store: Store, *, is_empty: bool = False) -> list[Leftover]:
    """What is left in a store where no job runs: places under limits, owners, waits for signals, wrong levels.
    StoreError.

    is_empty: all that was kept for a time has been deleted, too; then nothing of any job may be left, in any table.
    Wrong levels are put right by this, and the journal is summed up.
    """
    while store.history.sum_up(store.time()):
        pass
    found = [*_of_limits(store), *_of_jobs(store)]
    return [*found, *_of_tables(store)] if is_empty else found


def _of_limits(store: Store) -> Iterator[Leftover]:
    for name, (_, level) in store.limits().items():
        if level.running:
            yield Leftover("places under a limit", name, level.running)
    for name in list(store.kv_list(PREFIX))[:_MOST]:
        yield Leftover("kept place", name)
    # Those of keys, too, which no verb lists.
    if wrong := store.recount(store.time()):
        yield Leftover("wrong level", "all limits", wrong)


def _of_jobs(store: Store) -> Iterator[Leftover]:
    for owner in store.owners()[:_MOST]:
        yield Leftover("owner", owner)
    waits = store.flows.awaiting("", _MOST)
    for wait, job in zip(waits, store.get([wait.job for wait in waits]), strict=True):
        if job is None or job.state.finished:
            yield Leftover("wait for a signal", f"{wait.name} of {ids.text(wait.job)}")


def _of_tables(store: Any) -> Iterator[Leftover]:
    # By name: importing all engines would need all drivers. A store with keys says here what it is within.
    engine = store.__class__.__module__.split(".")[2]
    if engine == "shards":
        for shard in store.shards:
            yield from _of_tables(shard.store)
    elif engine in EMPTY_TABLES:
        for table in EMPTY_TABLES[engine]:
            ((count,),) = store._rows(f"SELECT count(*) FROM {store._sql.tables}{table}")
            if count:
                yield Leftover(f"rows of {table}", store.url, count)
    elif engine == "redis":
        yield from _of_keys(store)
    elif left := store.find(Query(limit=_MOST)):
        yield Leftover("jobs", store.url, len(left))


def _of_keys(store: Any) -> Iterator[Leftover]:
    begin = len(f"{store._prefix}:")
    for key in store._command("KEYS", "*"):
        name = key[begin:].decode(errors="replace")
        if not name.startswith(LASTING_KEYS):
            yield Leftover("key", name)
    # A number: so many nodes have the flows that are kept.
    if nodes := int(store._command("GET", "endednodes") or 0):
        yield Leftover("nodes of flows that have ended", "endednodes", nodes)
