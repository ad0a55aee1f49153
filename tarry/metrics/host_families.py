"""The figures of one master and its processes, as its scoreboard has them: they need no store."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from prometheus_client.core import Metric

from tarry.metrics.families import gauges
from tarry.store.queries.hosts import PoolFigures


class ProcessFigures(Struct, frozen=True):
    """A process of the master that lives."""

    name: str
    """`worker default.1`."""
    cpu_seconds: float
    memory: int
    """Bytes."""
    started: float
    """Seconds since the epoch."""


class HostFigures(Struct, frozen=True):
    """A master, and what it runs."""

    started: float
    """Seconds since the epoch."""
    keeper_up: bool
    reload_failed: bool
    pools: Sequence[PoolFigures]
    processes: Sequence[ProcessFigures]


def host_families(host: HostFigures) -> Iterator[Metric]:
    """All figures of the host."""
    yield from gauges(
        {
            "tarry_master_start_time_seconds": {(): host.started},
            "tarry_keeper_up": {(): float(host.keeper_up)},
            "tarry_reload_failed": {(): float(host.reload_failed)},
        }
    )
    yield from _pool_families(host.pools)
    yield from _process_families(host.processes)


def _pool_families(pools: Sequence[PoolFigures]) -> Iterator[Metric]:
    busy = {(pool.name, "busy"): pool.busy for pool in pools}
    idle = {(pool.name, "idle"): pool.workers - pool.busy for pool in pools}
    replaced = {(pool.name, reason): count for pool in pools for reason, count in _reasons(pool).items()}
    yield from gauges(
        {
            "tarry_workers": busy | idle,
            "tarry_workers_wanted": {(pool.name,): pool.wanted for pool in pools},
            "tarry_workers_memory_bytes": {(pool.name,): pool.memory for pool in pools},
            "tarry_workers_replaced_total": replaced,
            "tarry_pool_failed": {(pool.name,): float(bool(pool.failure)) for pool in pools},
        }
    )


def _reasons(pool: PoolFigures) -> dict[str, int]:
    # There from the start, so that the first crash is an increase, too.
    return {"crash": 0, "killed": 0, "hang": 0, **pool.replaced}


def _process_families(processes: Sequence[ProcessFigures]) -> Iterator[Metric]:
    # While one process is replaced by another in its place, both have the name: the one that began last counts.
    newest = {(one.name,): one for one in sorted(processes, key=lambda one: one.started)}
    yield from gauges(
        {
            "tarry_process_cpu_seconds_total": {name: one.cpu_seconds for name, one in newest.items()},
            "tarry_process_resident_memory_bytes": {name: one.memory for name, one in newest.items()},
            "tarry_process_start_time_seconds": {name: one.started for name, one in newest.items()},
        }
    )
