"""The sources of the dashboard: the scoreboard file and the store. Each is polled in its own thread."""

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from tarry.cli.top.facts import HistoryFigures, HostRow, JobCounts, MasterFigures, RunningJob, Snapshot, child_key
from tarry.cli.top.rates import CounterRates, RateTracker, WaitTracker
from tarry.client.clock import Clock
from tarry.errors import AppError, ConfigError
from tarry.model import lifecycle
from tarry.model.checks.unreadable import SEALED_PROGRESS
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.model.lifecycle import Rules
from tarry.model.retry import NEVER
from tarry.process.loading import CommandContext, open_app
from tarry.push.health import endpoint_health
from tarry.runtime import control
from tarry.store.queries.history_recent import recent_figures, recent_period
from tarry.store.queries.hosts import Host, list_hosts
from tarry.store.rules import ids
from tarry.store.rules.base import Store, Tally
from tarry.store.rules.partial_result import partial_result
from tarry.tasks import progress

if TYPE_CHECKING:
    from tarry.app import App
    from tarry.push.endpoint.endpoint_settings import Endpoint

T = TypeVar("T")

MOST_JOBS = 200
"""Running jobs that are listed."""
# Owners whose running jobs one poll reads: each takes a query.
_MOST_OWNERS = 64
_TIME_LIMIT = 1.0  # Seconds after which a poll stops to list more running jobs.


class StoreAccess(Struct, frozen=True):
    """How to open the store, and the rules for changes to its jobs."""

    open: Callable[[], Store]
    rules: Callable[[str, str], Rules]
    note: str = ""
    """Why the app could not be imported."""
    http: "Callable[[Store], Mapping[str, Endpoint]]" = lambda store: {}
    """Returns the current HTTP tasks; StoreError."""


def store_access(setup: CommandContext) -> StoreAccess:
    """Access to the store of the app; to the configured store if there is no app or it cannot be imported."""
    # With broken code on a host, its operator needs the dashboard most.
    config = setup.config
    note = ""
    if setup.app_name:
        try:
            return StoreAccess(setup.app.open_store, setup.app.rules, http=partial(_endpoints, setup.app))
        except AppError as error:
            note = str(error)

    def rules(task: str, queue: str) -> Rules:
        keep = config.keep(queue)
        return Rules(NEVER, keep.done, keep.dead)

    known = rules if config.queues else lambda task, queue: lifecycle.DEFAULT
    # Without its code: with the keys of the settings all the same.
    bare = open_app(None, config)
    return StoreAccess(bare.open_store, known, note, http=partial(_endpoints, bare))


def _endpoints(app: "App", store: Store) -> "Mapping[str, Endpoint]":
    """The HTTP tasks; without those of the configuration while that has an error."""
    with contextlib.suppress(ConfigError):
        app.http.load()
    app.http.sync(store)
    return app.http.endpoints


class LazyStore:
    """A store that is opened at its first use, and only once."""

    # If the file is moved away, that must be an error: opening again would create a new one.

    def __init__(self, opener: Callable[[], Store]) -> None:
        self._opener = opener
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """The store; StoreError if it cannot be opened."""
        if self._store is None:
            self._store = self._opener()
        return self._store

    def close(self) -> None:
        """Gives it back, if it was opened."""
        if self._store is not None:
            self._store.close()


class MasterSource:
    """The scoreboard of this host's master."""

    def __init__(self, pid_file: Path) -> None:
        self._pid_file = pid_file
        self._done, self._failed = CounterRates(), CounterRates()

    def look(self) -> MasterFigures:
        """Reads the scoreboard; MasterError if that fails."""
        board = control.status(self._pid_file)
        if board is None or not board.alive:
            return MasterFigures(board, {})
        at = monotonic()
        workers = {child_key(child): child for child in board.children}
        rates = self._done.update({name: child.processed for name, child in workers.items()}, at)
        failing = self._failed.update({name: child.failed for name, child in workers.items()}, at)
        return MasterFigures(board, rates, sum(failing.values()))

    def close(self) -> None:
        """Does nothing: it holds no resources."""


class CountSource:
    """Counts of all jobs."""

    def __init__(self, opener: Callable[[], Store]) -> None:
        self._lazy_store, self._flows = LazyStore(opener), RateTracker()

    def look(self) -> JobCounts:
        """Counts the jobs; StoreError."""
        troubles: list[str] = []
        store = self._lazy_store.store
        _still_there(store)
        tallies = _partly(store.counts, troubles)
        now = store.time()
        # Counts of some shards only say nothing about rates.
        flows = {} if troubles else self._flows.update(tallies, monotonic())
        return _add_up(tallies, now, JobCounts({}, {}, {}, flows, {}, "; ".join(troubles)))

    def close(self) -> None:
        """Gives the store back."""
        self._lazy_store.close()


def _add_up(tallies: list[Tally], now: int, into: JobCounts) -> JobCounts:
    for tally in tallies:
        counts = into.queues.setdefault(tally.queue, {})
        counts[tally.state] = counts.get(tally.state, 0) + tally.count
        into.tasks.setdefault(tally.queue, set()).add(tally.task)
        if tally.state in (State.READY, State.SCHEDULED):
            into.waiting[tally.task] = into.waiting.get(tally.task, 0) + tally.count
        if tally.state is State.READY:
            age = max(0.0, (now - tally.oldest) / SECOND)
            into.oldest[tally.queue] = max(age, into.oldest.get(tally.queue, 0.0))
    return into


class HistorySource:
    """The last minutes of the history."""

    def __init__(self, opener: Callable[[], Store]) -> None:
        self._lazy_store = LazyStore(opener)
        self._clock: Clock | None = None

    def look(self) -> HistoryFigures:
        """Reads the history; StoreError."""
        troubles: list[str] = []
        store = self._lazy_store.store
        clock = self._clock = self._clock or Clock(store.time)
        now = clock.now()
        period = recent_period(now)
        cells = _partly(lambda: store.history.read(period.resolution, period.start, period.end), troubles)
        return HistoryFigures(recent_figures(cells, now), "; ".join(troubles))

    def close(self) -> None:
        """Gives the store back."""
        self._lazy_store.close()


class SnapshotSource:
    """Paused queues, running jobs, hosts and HTTP tasks."""

    # This is cheap: stores find running jobs by owner, since leases need that all the time.

    def __init__(self, store_access: StoreAccess) -> None:
        self._lazy_store, self._http = LazyStore(store_access.open), store_access.http
        self._clock: Clock | None = None
        self._waits = WaitTracker()

    def look(self) -> Snapshot:
        """Reads the snapshot; StoreError."""
        troubles: list[str] = []
        store = self._lazy_store.store
        _still_there(store)
        self._clock = self._clock or Clock(store.time)
        now = self._clock.now()
        paused = _partly(store.queues, troubles)
        jobs, more = _running_jobs(store, now, troubles)
        return Snapshot(
            store.url,
            paused,
            [_job(job, now) for job in jobs],
            self._waits.update(jobs),
            [_host(host, now) for host in list_hosts(store, now)],
            endpoint_health(store, self._http(store), now),
            more,
            "; ".join(dict.fromkeys(troubles)),
        )

    def close(self) -> None:
        """Gives the store back."""
        self._lazy_store.close()


def _still_there(store: Store) -> None:
    """StoreError if the file of the store was moved away."""
    # Reads still work on a moved file; a change is refused, even an empty one.
    store.apply((), 0)


def _partly(ask: Callable[[], T], troubles: list[str]) -> T:
    answer, away = partial_result(ask)
    if away:
        troubles.append(str(away))
    return answer


def _running_jobs(store: Store, now: int, troubles: list[str]) -> tuple[list[Job], bool]:
    """The running jobs, read by owner, and whether there are more."""
    owners = _partly(store.owners, troubles)
    until = monotonic() + _TIME_LIMIT
    jobs: list[Job] = []
    for owner in owners[:_MOST_OWNERS]:
        if len(jobs) > MOST_JOBS or monotonic() > until:
            return jobs[:MOST_JOBS], True
        jobs += _partly(lambda: store.reclaim(now, owner, MOST_JOBS + 1), troubles)  # noqa: B023 - called at once
    return jobs[:MOST_JOBS], len(jobs) > MOST_JOBS or len(owners) > _MOST_OWNERS


def _job(job: Job, now: int) -> RunningJob:
    host, pid = _host_and_pid(job.owner)
    # Of one that is sealed here nobody knows how far it is; 0 would look as if it were known.
    is_sealed = job.progress.startswith(SEALED_PROGRESS)
    reported = None if is_sealed else progress.decode_progress(job.progress)
    return RunningJob(
        ids.text(job.id),
        job.task,
        job.queue,
        job.attempt,
        max(0, now - job.state_since) / SECOND,
        max(0, job.state_since - job.due) / SECOND,
        host,
        pid,
        job.key,
        reported.fraction if reported else None,
    )


def _host_and_pid(owner: str) -> tuple[str, int]:
    """Host and pid from an owner's name, `host|boot.namespace:pid:start:n`."""
    host, _, rest = owner.partition("|")
    parts = rest.split(":")
    return host, int(parts[1]) if len(parts) == 4 and parts[1].isdigit() else 0


def _host(host: Host, now: int) -> HostRow:
    return HostRow(
        host.instance,
        host.name,
        host.state,
        host.pid,
        max(0, now - host.started) / SECOND if host.started and host.is_alive else None,
        sum(pool.workers for pool in host.pools),
        sum(pool.busy for pool in host.pools),
        sum(pool.processed for pool in host.pools),
        sum(pool.failed for pool in host.pools),
        ", ".join(f"{pool.name} {pool.busy}/{pool.workers}" for pool in host.pools),
        max(0, now - host.seen) / SECOND,
        host.is_local,
    )
