"""Why somebody who waits for a job may wait for long: what can be said of it after two reads of the store."""

from datetime import UTC, datetime

from tarry.errors import StoreError
from tarry.model.duration import SECOND
from tarry.model.flow.node_ids import flow_of, is_root, node_id
from tarry.model.flow.own_queues import is_own_queue
from tarry.model.job import Job, State
from tarry.store.queries.hosts import list_hosts, serving_pools
from tarry.store.rules.base import Store

MOST_NODES = 50
"""Nodes of a flow that are looked at."""


def why_unfinished(store: Store, id: bytes) -> str:
    """What the job or the flow waits for, without a full stop; empty if it runs, or nothing is known. Never raises
    because of the store."""
    try:
        wanted = [id, *(node_id(flow_of(id), index) for index in range(MOST_NODES))] if is_root(id) else [id]
        jobs = [job for job in store.get(wanted) if job is not None and not job.state.finished]
        if any(job.state is State.RUNNING for job in jobs):
            return ""
        # A node that may start is what a flow waits for; its own record only waits for the nodes.
        ready = [job for job in jobs if job.state is State.READY]
        if ready:
            return _why_ready(store, ready[0])
        due = [job for job in jobs if job.state is State.SCHEDULED]
        return _why_scheduled(min(due, key=lambda job: job.due)) if due else ""
    except StoreError:
        return ""


def _why_scheduled(job: Job) -> str:
    when = datetime.fromtimestamp(job.due / SECOND, UTC).isoformat(sep=" ", timespec="seconds")
    return f"it is scheduled for {when}"


def _why_ready(store: Store, job: Job) -> str:
    if store.queues().get(job.queue, False):
        return f"queue {job.queue} is paused: `tarry queues resume {job.queue}`"
    pools = [pool for host in list_hosts(store) if host.is_alive for pool in host.pools]
    serving = serving_pools(pools, job.queue)
    # A master of an earlier version does not tell what it serves, and each worker has a queue of its own.
    if serving is None or is_own_queue(job.queue) or any(pool.workers for pool in serving):
        return ""
    return f"no live worker of a master serves queue {job.queue}; start one with `tarry start`"
