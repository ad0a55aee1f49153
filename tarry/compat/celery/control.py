"""`app.control`: revokes jobs, and tells of workers what health checks ask for."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tarry.compat.celery.differences import CeleryNotSupported
from tarry.compat.celery.result import AsyncResult
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.store.queries.hosts import Host, WorkerFigures, list_hosts
from tarry.store.rules import ids
from tarry.store.rules.base import Query

MOST_ACTIVE = 1000
"""Jobs that `active` tells of."""
_INSTEAD = {
    "rate_limit": "`tarry limits set task:NAME --rate 10/m`",
    "shutdown": "`tarry stop`",
    "purge": "`tarry queues purge NAME`",
    "broadcast": "`task.native.broadcast(...)`",
    "pool_grow": "`tarry scale POOL N`",
    "pool_shrink": "`tarry scale POOL N`",
    "pool_restart": "`tarry reload`",
    "time_limit": "`timeout` of the task, and `tarry reload`",
    "add_consumer": "`queues` under [pools.NAME] in tarry.toml, and `tarry reload`",
    "cancel_consumer": "`queues` under [pools.NAME] in tarry.toml, and `tarry reload`",
    "reserved": "`tarry jobs list --state ready`",
    "scheduled": "`tarry jobs list --state scheduled`",
    "active_queues": "`tarry queues`",
    "revoked": "`tarry jobs list --state cancelled`",
    "report": "`tarry status` or `tarry hosts`",
    "conf": "`tarry check`",
    "query_task": "AsyncResult(id)",
}


class Inspect:
    """What is known of the workers of all hosts by the store, without asking them. As Celery's, each answer is a dict
    by worker, or None if there is none."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def ping(self) -> dict[str, dict[str, str]] | None:
        """The workers that live."""
        return {name: {"ok": "pong"} for name, _, _ in self._workers()} or None

    def stats(self) -> dict[str, dict[str, Any]] | None:
        """Of each its process, since when it runs, and how many jobs it has done."""
        return {name: _stats(host, worker) for name, host, worker in self._workers()} or None

    def registered(self) -> dict[str, list[str]] | None:
        """The tasks of this app, which all workers have."""
        tasks = sorted(self._app._celery_tasks)
        return {name: tasks for name, _, _ in self._workers()} or None

    def active(self) -> dict[str, list[dict[str, Any]]] | None:
        """The jobs that run."""
        found = self._app.client.store.find(Query((State.RUNNING,), limit=MOST_ACTIVE))
        return {
            name: [self._active(job, name) for job in found if job.owner == worker.owner]
            for name, _, worker in self._workers()
        } or None

    def _active(self, job: Job, worker: str) -> dict[str, Any]:
        result = AsyncResult(ids.text(job.id), app=self._app)
        known = {"id": result.id, "name": job.task, "args": result.args, "kwargs": result.kwargs}
        return {**known, "time_start": job.state_since / SECOND, "hostname": worker, "acknowledged": True}

    def _workers(self) -> Iterator[tuple[str, Host, WorkerFigures]]:
        for host in list_hosts(self._app.client.store):
            for worker in host.workers if host.is_alive else ():
                if worker.state == "ready":
                    yield f"{worker.pool}.{worker.number}@{host.name}", host, worker

    def __getattr__(self, name: str) -> Any:
        """AttributeError, or CeleryNotSupported for what Celery has here."""
        return _refuse("app.control.inspect().", name)


class Control:
    """Revokes jobs. What Celery has and this has not raises CeleryNotSupported, with the command that does it."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def revoke(self, task_id: Any, terminate: bool = False, **ignored: Any) -> None:
        """Cancels these jobs; one that runs is interrupted."""
        single = isinstance(task_id, str | UUID | AsyncResult) or task_id is None
        for id in [task_id] if single else task_id:
            AsyncResult(str(id), app=self._app).revoke(terminate)

    terminate = revoke

    def inspect(self, destination: Any = None, timeout: float = 1.0, **ignored: Any) -> Inspect:
        """`ping`, `stats`, `active` and `registered` of the workers of all hosts."""
        return Inspect(self._app)

    def ping(self, destination: Any = None, timeout: float = 1.0, **ignored: Any) -> list[dict[str, Any]]:
        """One dict for each worker that lives."""
        return [{name: answer} for name, answer in (Inspect(self._app).ping() or {}).items()]

    def __getattr__(self, name: str) -> Any:
        """AttributeError, or CeleryNotSupported for what Celery has here."""
        return _refuse("app.control.", name)


def _refuse(where: str, name: str) -> Any:
    if name in _INSTEAD:
        raise CeleryNotSupported(f"{where}{name}: {_INSTEAD[name]}")
    raise AttributeError(name)


def _stats(host: Host, worker: WorkerFigures) -> dict[str, Any]:
    uptime = datetime.now(UTC).timestamp() - worker.started
    pool = {"max-concurrency": 1, "processes": [worker.pid]}
    return {"pid": worker.pid, "uptime": max(0, int(uptime)), "total": {"all": worker.processed}, "pool": pool}
