"""Turns the ticks of schedules into jobs. Every host does this, and each tick still makes one job only.

There is no leader. The job of a tick holds a key that names the tick, until an hour after the job has ended; so a
second host finds that the job exists. The state in the store says how far each schedule has come.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tarry.client.client import Client
from tarry.client.handle import Handle
from tarry.errors import ConfigError, QueueFull, StoreAway, StoreError, TarryError
from tarry.keeper import schedule_runs, schedule_state
from tarry.keeper.schedule_state import ScheduleState, StoredState
from tarry.model.duration import DAY, HOUR, SECOND
from tarry.model.nearest import did_you_mean
from tarry.model.schedules.calendar import Calendar
from tarry.model.schedules.schedule import REFUSED, Schedule, ScheduledRun, left_out, newest
from tarry.store.shared.backoff import Backoff
from tarry.tasks.arguments.options import Options
from tarry.tasks.definition import TaskDefinition

log = logging.getLogger("tarry.cron")

# No host is later with a tick than this.
KEY_KEPT_FOR = "1h"
"""How long the job of a tick keeps its key after its end."""
UNUSED_AFTER = 30 * DAY
"""Microseconds after which the state of a schedule that no host has any more is removed."""
# A state further in the future was written with a wrong clock.
MAX_AHEAD = DAY
"""Microseconds."""
_CHECK_EVERY = HOUR
"""A schedule is checked this often even if it does not tick."""
_SWEEP_EVERY = HOUR // 2
"""The ends of jobs are looked for this often: twice while the job of a tick is kept after its end."""


def schedules_of(
    tasks: Mapping[str, TaskDefinition[Any, Any]], calendars: Mapping[str, Calendar]
) -> dict[str, Schedule]:
    """All schedules by name; the later one if two have the same name. calendars: of the settings. ConfigError: one
    names a calendar that is not among them, or has no tick on its days."""
    return {name: _on_its_days(schedule, calendars) for name, schedule in _written(tasks).items()}


def _written(tasks: Mapping[str, TaskDefinition[Any, Any]]) -> dict[str, Schedule]:
    return {schedule.name: schedule for task in list(tasks.values()) for schedule in task.schedules}


def _on_its_days(schedule: Schedule, calendars: Mapping[str, Calendar]) -> Schedule:
    name = schedule.calendar_name
    if not name:
        return schedule
    if name not in calendars:
        known = did_you_mean(name, calendars) or f"; they have: {', '.join(sorted(calendars)) or 'none'}"
        raise ConfigError(f"schedule {schedule.name}: the settings have no [calendars.{name}]{known}")
    try:
        return schedule.on(calendars[name])
    except ValueError as error:
        raise ConfigError(f"schedule {schedule.name}: calendar {name}: {error}") from None


def check_names(tasks: Mapping[str, TaskDefinition[Any, Any]], new: TaskDefinition[Any, Any]) -> None:
    """ConfigError if a schedule of the new task has the same name as a schedule of another task."""
    if not new.schedules:
        return
    # Without the task of the same name: a module that is loaded again replaces its own task.
    taken = _written({name: task for name, task in tasks.items() if name != new.name})
    for schedule in new.schedules:
        if other := taken.get(schedule.name):
            raise ConfigError(
                f"{new.name}: a schedule of {other.task} is named {schedule.name!r} too; give it another Cron(name=...)"
            )


def run_now(client: Client, schedule: Schedule) -> Handle[Any]:
    """Enqueues the call of a schedule now, even if it is paused; its ticks do not change."""
    return client.enqueue(client.tasks[schedule.task], schedule.args, schedule.kwargs)


class ScheduleTicker:
    """`tick()` enqueues the jobs that the schedules of the client's tasks make due, and returns for how many seconds
    there is nothing to do. Not thread-safe. calendars: of the settings; ConfigError as `schedules_of`."""

    def __init__(self, client: Client, calendars: Mapping[str, Calendar]) -> None:
        self._client, self._calendars = client, calendars
        # A wrong name must fail the start, and not be found by nobody.
        schedules_of(client.tasks, calendars)
        self._next_check: dict[str, int] = {}
        """When to check each schedule again."""
        self._backoffs: dict[str, Backoff] = {}
        """Of each schedule that ever failed because its shard was away or its queue full."""
        self._sweep_at = 0
        self._started_at: int | None = None
        self._last_now = 0
        self._backoff = Backoff(log, "schedules tick again")

    def tick(self) -> float:
        """Raises no error: logs it, and tries again soon."""
        return guard(self._tick, self._backoff)

    def _tick(self) -> float:
        schedules = schedules_of(self._client.tasks, self._calendars)
        now = self._now()
        due = [schedule for name, schedule in schedules.items() if self._next_check.get(name, 0) <= now]
        if due or self._sweep_at <= now:
            stored = schedule_state.read(self._client.store)
            ended: dict[str, ScheduleState] = {}
            if self._sweep_at <= now:
                ended = self._read_ends(stored, schedules)
                self._sweep(stored, schedules, now)
            due_names = {schedule.name for schedule in due}
            also = [schedules[name] for name in ended if name not in due_names]
            self._process([*due, *also], stored, ended, now)
        soonest = min((self._next_check[name] for name in schedules), default=self._sweep_at)
        return max(0, min(soonest, self._sweep_at) - self._client.clock.now()) / SECOND

    def _now(self) -> int:
        now = self._client.clock.now()
        if self._started_at is None or now < self._last_now:
            # At the start, and after the clock was set back, the times of the next checks are not valid.
            self._started_at = now if self._started_at is None else min(self._started_at, now)
            self._next_check.clear()
            self._sweep_at = 0
        self._last_now = now
        return now

    def _read_ends(
        self, stored: Mapping[str, StoredState], schedules: Mapping[str, Schedule]
    ) -> dict[str, ScheduleState]:
        """The states that tell more than before, with the ends of jobs of earlier ticks, by name."""
        states = {name: state for name, (state, _) in stored.items() if name in schedules}
        still_open = [run for state in states.values() for run in state.runs if run.is_open]
        try:
            jobs = schedule_runs.read_jobs(self._client.store, still_open) if still_open else {}
        except StoreAway:
            # The next sweep comes before these jobs go.
            return {}
        ended = {name: replace(state, runs=schedule_runs.with_ends(state.runs, jobs)) for name, state in states.items()}
        return {name: state for name, state in ended.items() if state != states[name]}

    def _process(
        self,
        due: Sequence[Schedule],
        stored: Mapping[str, StoredState],
        ended: Mapping[str, ScheduleState],
        now: int,
    ) -> None:
        """Enqueues the jobs of all due schedules, then writes their states. ended: of `_read_ends`."""
        # The jobs come first, since they must be in time. After a crash before the states are written, they are
        # enqueued again, and the key of each tick makes that harmless.
        states: list[tuple[Schedule, ScheduleState]] = []
        for schedule in due:
            before = stored[schedule.name][0] if schedule.name in stored else None
            state, wanted = self._plan(schedule, ended.get(schedule.name, before), now)
            runs: list[ScheduledRun] = []
            if self._attempt(schedule, now, lambda: self._enqueue_all(schedule, wanted, runs)):  # noqa: B023
                states.append((schedule, replace(state, runs=newest([*state.runs, *runs]))))
            elif runs:
                self._save_part(schedule, state, runs, stored.get(schedule.name))
        for schedule, state in states:
            is_saved = self._attempt(schedule, now, lambda: self._save(schedule, state, stored.get(schedule.name), now))  # noqa: B023
            if is_saved and schedule.name in self._backoffs:
                self._backoffs[schedule.name].succeed()

    def _attempt(self, schedule: Schedule, now: int, action: Callable[[], None]) -> bool:
        """Runs the action. False if its shard is away or its queue full: then this schedule is tried again later, and
        the others go on."""
        try:
            action()
        except (StoreAway, QueueFull) as error:
            failed_at = time.monotonic()
            new = Backoff(log, f"schedule {schedule.name}: its jobs are stored again")
            backoff = self._backoffs.setdefault(schedule.name, new)
            if backoff.fail(failed_at):
                log.error("schedule %s: %s", schedule.name, error)
            self._next_check[schedule.name] = now + round(backoff.left(failed_at) * SECOND)
            return False
        return True

    def _enqueue_all(self, schedule: Schedule, ticks: Sequence[int], runs: list[ScheduledRun]) -> None:
        """Enqueues each tick even if another one fails; StoreAway or QueueFull afterwards. Adds those before the first
        that fails to `runs`."""
        # The next try finds the stored ones by their keys.
        failed: StoreAway | QueueFull | None = None
        for tick in ticks:
            try:
                run = self._enqueue(schedule, tick)
            except (StoreAway, QueueFull) as error:
                failed = failed or error
                continue
            if failed is None:
                runs.append(run)
        if failed is not None:
            raise failed

    def _plan(self, schedule: Schedule, before: ScheduleState | None, now: int) -> tuple[ScheduleState, Sequence[int]]:
        """The new state, and the ticks that become jobs."""
        if before is None:
            return schedule_state.initial_state(schedule, now), ()
        state = self._adjust(schedule, before, now)
        ticks = () if state.paused else schedule.ticks(state.after, now)
        if not ticks:
            return state, ()
        wanted = schedule.wanted(ticks, now)
        if dropped := ticks[: len(ticks) - len(wanted)]:
            text = "schedule %s: nothing ran for a while; left out %d of its ticks"
            log.warning(text, schedule.name, len(dropped))
            state = replace(state, runs=[*state.runs, left_out(dropped)])
        return replace(state, after=ticks[-1], last=wanted[-1] if wanted else state.last), wanted

    def _adjust(self, schedule: Schedule, state: ScheduleState, now: int) -> ScheduleState:
        # Exact to a day is enough, and saves a write at every check.
        if now - state.seen >= DAY or state.seen > now:
            state = replace(state, seen=now)
        if state.after > now + MAX_AHEAD:
            log.warning("schedule %s: the clock was set back far; it ticks from now on", schedule.name)
            return replace(state, after=now)
        if state.rule != schedule.rule:
            # The rule has changed: ticks of the new rule in the past were not missed. During a deployment hosts with
            # both rules run: each continues from its own start.
            return replace(state, rule=schedule.rule, after=max(state.after, self._started_at or 0))
        return state

    def _enqueue(self, schedule: Schedule, tick: int) -> ScheduledRun:
        options = Options(at=tick / SECOND, key=schedule.key(tick), unique_for=KEY_KEPT_FOR, keeps_attempts=True)
        try:
            task = self._client.tasks[schedule.task]
            job = self._client.enqueue(task, schedule.args, schedule.kwargs, options)
        except StoreError:
            # Tried again later. Any other error would come at each try, so the tick is given up for it.
            raise
        except Exception as error:  # such as arguments that are too long for max_body, or the app's middleware
            known = isinstance(error, TarryError)
            log.error("schedule %s: %s", schedule.name, error, exc_info=None if known else error)
            return ScheduledRun(tick, end=REFUSED)
        return ScheduledRun(tick, job.id)

    def _save_part(
        self, schedule: Schedule, state: ScheduleState, runs: Sequence[ScheduledRun], stored: StoredState | None
    ) -> None:
        """Writes that the ticks of these runs are over, where a later one could not be stored: a key is kept for a
        while only, so they must not be tried again for ever."""
        last = runs[-1].tick
        part = replace(state, after=last, last=last, runs=newest([*state.runs, *runs]))
        with contextlib.suppress(StoreAway):
            schedule_state.write(self._client.store, schedule.name, part, None if stored is None else stored[1])

    def _save(self, schedule: Schedule, state: ScheduleState, stored: StoredState | None, now: int) -> None:
        expected = None if stored is None else stored[1]
        moved = stored is None or state != stored[0]
        if moved and not schedule_state.write(self._client.store, schedule.name, state, expected):
            # Another host moved it on, or somebody paused it: check again.
            self._next_check[schedule.name] = now
            return
        tick = schedule.timetable.next(max(now, state.after))
        self._next_check[schedule.name] = now + _CHECK_EVERY if tick is None else min(tick, now + _CHECK_EVERY)

    def _sweep(self, stored: Mapping[str, StoredState], schedules: Mapping[str, Schedule], now: int) -> None:
        for name, (state, expected) in stored.items():
            if name not in schedules and state.seen < now - UNUSED_AFTER:
                # The next sweep removes it.
                with contextlib.suppress(StoreAway):
                    schedule_state.write(self._client.store, name, None, expected)
        self._sweep_at = now + (_SWEEP_EVERY if schedules else _CHECK_EVERY)


def guard(tick: Callable[[], float], backoff: Backoff) -> float:
    """Its pause; after an error, which is logged, a short one."""
    try:
        pause = tick()
    except Exception as error:  # of the store, of a task that came later, or over what the store has of a schedule
        known = isinstance(error, StoreError | ConfigError)
        if backoff.fail(time.monotonic()):
            log.error("schedules: %s", error, exc_info=None if known else error)
        return min(5.0, 0.1 * 2.0 ** min(backoff.tries, 8))
    backoff.succeed()
    return pause
