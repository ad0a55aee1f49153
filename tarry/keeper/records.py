"""What people and programs see of schedules, limits and hosts: the commands' --json, and the HTTP API.

Times are seconds since the epoch.
"""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from tarry.keeper import schedule_state
from tarry.keeper.host_requests import HostAct, HostRequest, RequestState
from tarry.keeper.limits import EffectiveLimit
from tarry.keeper.schedule_state import StoredState
from tarry.model.duration import SECOND
from tarry.model.limit import EACH
from tarry.model.schedule import Schedule
from tarry.store.base import Store
from tarry.store.hosts import Host, PoolFigures


class ScheduleRecord(Struct, frozen=True):
    """A schedule, and how far it has come."""

    name: str
    task: str
    cron: str
    zone: str
    calendar: str
    """The days on which it ticks: the name of a calendar of the settings, or its days in short; empty: every day."""
    missed: str
    """What becomes of ticks that no host saw: see `Schedule`."""
    next: float | None
    """null: it is paused, or never ticks again."""
    last: float | None
    """The newest tick that became a job; null: none yet."""
    paused: bool


class LimitRecord(Struct, frozen=True):
    """A limit in effect, and how far it is used."""

    limit: str
    """`queue:NAME`, `task:NAME`, or `each:NAME` for each key of a task."""
    at_once: int | None
    """null: no bound."""
    rate: str | None
    """null: no bound."""
    running: int | None
    """null: each key has its own level."""
    set_by: str
    """`hand` or `code`."""


class RequestRecord(Struct, frozen=True):
    """Something that a master was asked for through the store, and its outcome."""

    id: str
    act: HostAct
    state: RequestState
    at: float
    by: str
    """Who asked; empty: not known."""
    pool: str
    workers: int
    worker: str
    """The worker that is meant, as the owner of jobs."""
    job: str
    """The job that is meant."""
    ended: float | None
    text: str
    """The outcome in words, or the stack."""


class HostRecord(Struct, frozen=True):
    """One master, as it last reported."""

    instance: str
    name: str
    pid: int
    pid_file: str
    version: str
    state: str
    started: float
    seen: float
    pools: list[PoolFigures]
    alive: bool
    local: bool
    """It is the master with the pid file of these settings, on this machine."""
    worker_count: int = 0
    generation: int = 0
    """Of the processes that serve: each successful reload adds one. 0: a master of an earlier version does not tell."""
    reloading: str = ""
    """The stage of a running reload; empty: none runs."""
    reloaded: float | None = None
    """When the last reload ended; null: there was none."""
    reload_failure: str = ""
    """Why the last reload failed; empty: it did not."""
    remote_control: bool = False
    """Whether it takes requests that come through the store."""


def schedule_records(store: Store, schedules: Mapping[str, Schedule], now: int) -> list[ScheduleRecord]:
    """The schedules by name. now: microseconds by the store's clock. StoreError."""
    stored = schedule_state.read(store)
    return [_schedule(schedule, stored.get(name), now) for name, schedule in sorted(schedules.items())]


def _schedule(schedule: Schedule, stored: StoredState | None, now: int) -> ScheduleRecord:
    state = stored[0] if stored else schedule_state.initial_state(schedule, now)
    next_tick = None if state.paused else schedule.timetable.next(max(now, state.after))
    return ScheduleRecord(
        schedule.name,
        schedule.task,
        schedule.expression,
        schedule.zone,
        schedule.calendar_name or str(schedule.calendar or ""),
        schedule.missed,
        None if next_tick is None else next_tick / SECOND,
        state.last / SECOND or None,
        state.paused,
    )


def limit_record(one: EffectiveLimit) -> LimitRecord:
    """The record of a limit."""
    # Each key of a task has its own level; there may be millions.
    running = None if one.name.startswith(EACH) else one.level.running
    return LimitRecord(one.name, one.limit.most, one.limit.rate_text, running, "hand" if one.by_hand else "code")


def host_record(host: Host, pid_file: Path) -> HostRecord:
    """The record of a host. pid_file: of the settings of whoever asks."""
    return HostRecord(
        host.instance,
        host.name,
        host.pid,
        host.pid_file,
        host.version,
        host.state,
        host.started / SECOND,
        host.seen / SECOND,
        host.pools,
        host.is_alive,
        is_own(host, pid_file),
        host.worker_count,
        host.generation,
        host.reloading,
        host.reloaded or None,
        host.reload_failure,
        host.remote_control,
    )


def request_record(request: HostRequest) -> RequestRecord:
    """The record of a request."""
    return RequestRecord(
        request.id,
        request.act,
        request.state,
        request.at / SECOND,
        request.by,
        request.pool,
        request.workers,
        request.owner,
        request.job,
        request.ended / SECOND or None,
        request.text,
    )


def is_own(host: Host, pid_file: Path) -> bool:
    """Whether it is the master with this pid file, on this machine."""
    return host.is_local and host.pid_file == str(pid_file)
