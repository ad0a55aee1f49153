"""What people and programs see of schedules, limits and hosts: the commands' --json, and the HTTP API.

Times are seconds since the epoch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from tarry.keeper import schedule_runs, schedule_state
from tarry.keeper.host_requests import HostAct, HostRequest, RequestState
from tarry.keeper.limits import EffectiveLimit
from tarry.keeper.schedule_runs import job_id, seen_in
from tarry.keeper.schedule_state import ScheduleState
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.limit import EACH
from tarry.model.schedules.schedule import Schedule, ScheduledRun
from tarry.store.queries.hosts import Host, PoolFigures
from tarry.store.rules.base import Store

_UPCOMING = 5
GONE = "gone"
"""The state of a run whose job is no longer kept, and whose end nobody saw."""


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
    source: Literal["code", "stored"] = "code"
    """`code`: a line of the app. `stored`: somebody has put it while the app ran."""
    jitter: float = 0.0
    """Seconds by which a job is due later than its tick at most."""
    until: float | None = None
    """No tick comes after this time; null: it has no end."""
    problem: str = ""
    """Why its jobs could not be made the last time; empty: they could."""
    by: str = ""
    """Who put it last; empty: not known, or it is of code."""
    queue: str | None = None
    """Of its jobs; null: the task's."""
    priority: int | None = None
    """Of its jobs; null: the task's."""


class ScheduledRunRecord(Struct, frozen=True):
    """What became of a tick of a schedule. Times are seconds since the epoch; null: not known, or not yet."""

    tick: float
    state: str
    """That of its job. `gone`: the job is no longer kept, and no host saw its end. `left_out`: nothing ran then, and
    nobody makes up for it. `refused`: the call could not be enqueued; the keeper's log says why."""
    job: str | None
    """Its id; null: it has none."""
    kept: bool
    """Whether the job is still kept."""
    started: float | None
    """When its first attempt began."""
    ended: float | None
    delay: float | None
    """Seconds from the tick to the start."""
    duration: float | None
    """Seconds from the start to the end, with the pauses between attempts."""
    ticks: int
    """How many ticks this is about: at least so many were left out together, of which `tick` is the last; else 1."""


class ScheduleDetail(ScheduleRecord, frozen=True):
    """A schedule, with its runs."""

    runs: list[ScheduledRunRecord] = []
    """The last 20, the oldest first."""
    upcoming: list[float] = []
    """The next five ticks; empty: it is paused, or never ticks again."""
    args: Any = None
    """The arguments of its call, a list or an object by name; null: those of code are in the code."""
    expires: float | str | None = None
    """A job is cancelled unless started within so long; null: as the task says. So are the next three."""
    timeout: float | str | None = None
    cost: int | None = None
    labels: dict[str, str] | None = None


class LimitRecord(Struct, frozen=True):
    """A limit in effect, and how far it is used."""

    limit: str
    """`queue:NAME`, `task:NAME`, `each:NAME` for each key of a task, or `each:NAME=KEY` for one of them."""
    at_once: int | None
    """null: no bound."""
    rate: str | None
    """null: no bound."""
    running: int | None
    """null: each key has its own level."""
    set_by: str
    """`hand` or `code`."""
    has_keys: bool = False
    """Of a limit for each key: some keys have numbers of their own."""
    paused: bool = False
    """Of one key: nothing of it starts, whatever the numbers are."""
    waiting: int | None = None
    """Of one key: how many of its jobs are ready, up to 1,000 of each queue. null: not counted."""
    oldest: float | None = None
    """Since when the first of these waits."""
    weight: int | None = None
    """Of each key, or of one: how many starts it has while others have as many as theirs say. null: it has no keys."""
    max_waiting: int | None = None
    """Of one key: how many of its jobs may wait. null: any number."""


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
    states = {name: stored[name][0] for name in schedules if name in stored}
    return [ScheduleRecord(**_fields(one, states.get(name), now)) for name, one in sorted(schedules.items())]


def schedule_detail(store: Store, schedule: Schedule, now: int) -> ScheduleDetail:
    """One schedule, with its runs. now: microseconds by the store's clock. StoreError."""
    state, _ = schedule_state.read(store).get(schedule.name, (None, b""))
    runs = [] if state is None else state.runs
    is_paused = state is not None and state.paused
    upcoming = [] if is_paused else upcoming_ticks(schedule, max(now, 0 if state is None else state.after))
    return ScheduleDetail(**_fields(schedule, state, now), runs=run_records(store, runs), upcoming=upcoming)


def upcoming_ticks(schedule: Schedule, after: int) -> list[float]:
    """The next ticks, in seconds."""
    return [tick / SECOND for tick in schedule.next_ticks(after, _UPCOMING)]


def run_records(store: Store, runs: Sequence[ScheduledRun]) -> list[ScheduledRunRecord]:
    """The last runs of a schedule, with what their jobs tell; StoreError."""
    jobs = schedule_runs.read_jobs(store, runs)
    return [_run(one, jobs.get(job_id(one) or b"")) for one in runs]


def _fields(schedule: Schedule, known: ScheduleState | None, now: int) -> dict[str, Any]:
    state = known or schedule_state.initial_state(schedule, now)
    next_tick = None if state.paused else schedule.timetable.next(max(now, state.after))
    return {
        "name": schedule.name,
        "task": schedule.task,
        "cron": schedule.expression,
        "zone": schedule.zone,
        "calendar": schedule.calendar_name or str(schedule.calendar or ""),
        "missed": schedule.missed,
        "next": None if next_tick is None else next_tick / SECOND,
        "last": state.last / SECOND or None,
        "paused": state.paused,
    }


def _run(stored: ScheduledRun, job: Job | None) -> ScheduledRunRecord:
    # The job knows best: it may have been tried again since its end was noted.
    run = seen_in(stored, job)
    return ScheduledRunRecord(
        run.tick / SECOND,
        str(job.state) if job is not None else run.end or GONE,
        run.job or None,
        job is not None,
        run.started / SECOND or None,
        run.ended / SECOND or None,
        max(0, run.started - run.tick) / SECOND if run.started else None,
        max(0, run.ended - run.started) / SECOND if run.started and run.ended else None,
        run.ticks,
    )


def limit_record(one: EffectiveLimit) -> LimitRecord:
    """The record of a limit."""
    # Each key of a task has its own level; there may be millions.
    running = None if one.name.startswith(EACH) else one.level.running
    limit, set_by = one.limit, "hand" if one.by_hand else "code"
    weight = limit.weight if one.name.startswith(EACH) else None
    return LimitRecord(one.name, limit.most, limit.rate_text, running, set_by, limit.has_key_limits, weight=weight)


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
