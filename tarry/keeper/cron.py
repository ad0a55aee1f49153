"""The ticks of schedules become jobs. Every host may do this: of those that make the job of a tick, one does.

There is no leader. A tick's job holds a key that names the tick, and for an hour after it has ended too, so whoever
makes it second finds it there. A bookmark in the store says how far each schedule has come; it is moved on once the
jobs are stored, so a crash in between makes them again, and the key makes that nothing.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tarry.client.client import Client
from tarry.client.handle import Handle
from tarry.errors import ConfigError, StoreAway, StoreError, TarryError
from tarry.keeper import schedule_state
from tarry.keeper.schedule_state import Bookmark, Kept
from tarry.model.duration import DAY, HOUR, SECOND
from tarry.model.schedule import Schedule
from tarry.store.shared.patience import Backoff, back_off
from tarry.tasks.task import Options, Task

log = logging.getLogger("tarry.cron")

KEYED = "1h"
"""How long the job of a tick holds its key after it has ended: no host is later than this."""
LEFT = 30 * DAY
"""What no host has had for so long has left the code: its bookmark goes."""
SET_BACK = DAY
"""If a bookmark lies further ahead than this, the clock was wrong when it was written."""
_LOOK = HOUR
"""A schedule is looked at this often, also if it does not tick."""


def schedules_of(tasks: Mapping[str, Task[Any, Any]]) -> dict[str, Schedule]:
    """All schedules by name; of two with one name the later."""
    return {schedule.name: schedule for task in list(tasks.values()) for schedule in task.schedules}


def check_names(tasks: Mapping[str, Task[Any, Any]], new: Task[Any, Any]) -> None:
    """ConfigError if a schedule of the new task has the name of another task's."""
    if not new.schedules:
        return
    taken = schedules_of({name: task for name, task in tasks.items() if name != new.name})
    for schedule in new.schedules:
        if other := taken.get(schedule.name):
            raise ConfigError(
                f"{new.name}: a schedule of {other.task} is named {schedule.name!r} too; give it another Cron(name=...)"
            )


def run_now(client: Client, schedule: Schedule) -> Handle[Any]:
    """Makes the call of a schedule at once; when it ticks stays as it is, also if it is paused."""
    return client.enqueue(client.tasks[schedule.task], schedule.args, schedule.kwargs)


class Ticker:
    """`tick()` enqueues what is due by the schedules of the client's tasks and says for how many seconds there is
    nothing to do. Not to be called from two threads at once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._looks: dict[str, int] = {}
        """When to look at each schedule again."""
        self._late: dict[str, int] = {}
        """How often in a row each schedule could not be served, for a store that is away."""
        self._sweep = 0
        self._born: int | None = None
        self._was = 0
        self._backoff = Backoff()

    def tick(self) -> float:
        """Never raises StoreError: it is logged, and what could not be done is tried again soon."""
        try:
            pause = self._tick()
        except StoreError as error:
            if self._backoff.fail(time.monotonic()):
                log.error("schedules: %s", error)
            return min(5.0, 0.1 * 2.0 ** min(self._backoff.tries, 8))
        self._backoff.succeed()
        return pause

    def _tick(self) -> float:
        schedules = schedules_of(self._client.tasks)
        now = self._now()
        due = [schedule for name, schedule in schedules.items() if self._looks.get(name, 0) <= now]
        if due or self._sweep <= now:
            kept = schedule_state.read(self._client.store)
            self._make(due, kept, now)
            if self._sweep <= now:
                self._forget(kept, schedules, now)
        soonest = min((self._looks[name] for name in schedules), default=self._sweep)
        return max(0, min(soonest, self._sweep) - self._client.clock.now()) / SECOND

    def _now(self) -> int:
        now = self._client.clock.now()
        if self._born is None or now < self._was:
            # At the start, and when the clock was set back: nothing known of when to look again holds.
            self._born = now if self._born is None else min(self._born, now)
            self._looks.clear()
            self._sweep = 0
        self._was = now
        return now

    def _make(self, due: Sequence[Schedule], kept: Mapping[str, Kept], now: int) -> None:
        """First the jobs of all, since they are to be in time, then the bookmarks."""
        marks: list[tuple[Schedule, Bookmark]] = []
        for schedule in due:
            before = kept[schedule.name][0] if schedule.name in kept else None
            mark, wanted = self._turned(schedule, before, now)
            if self._tried(schedule, now, lambda: self._enqueue_all(schedule, wanted)):  # noqa: B023
                marks.append((schedule, mark))
        for schedule, mark in marks:
            if self._tried(schedule, now, lambda: self._keep(schedule, mark, kept.get(schedule.name), now)):  # noqa: B023
                self._late.pop(schedule.name, None)

    def _tried(self, schedule: Schedule, now: int, action: Callable[[], None]) -> bool:
        """False if one of several stores is away on which it depends: then it is tried again later, and the other
        schedules go on."""
        try:
            action()
        except StoreAway as error:
            late = self._late[schedule.name] = self._late.get(schedule.name, 0) + 1
            if late % 20 == 1:
                log.error("schedule %s: %s", schedule.name, error)
            self._looks[schedule.name] = now + round(back_off(late) * SECOND)
            return False
        return True

    def _enqueue_all(self, schedule: Schedule, ticks: Sequence[int]) -> None:
        """Each, whatever becomes of the others: those that are stored are known by their keys the next time."""
        away: StoreAway | None = None
        for tick in ticks:
            try:
                self._enqueue(schedule, tick)
            except StoreAway as error:
                away = away or error
        if away is not None:
            raise away

    def _turned(self, schedule: Schedule, before: Bookmark | None, now: int) -> tuple[Bookmark, Sequence[int]]:
        """The bookmark as it is to be, and the ticks that are to become jobs."""
        if before is None:
            return schedule_state.fresh(schedule, now), ()
        mark = self._checked(schedule, before, now)
        ticks = () if mark.paused else schedule.ticks(mark.after, now)
        if not ticks:
            return mark, ()
        wanted = schedule.wanted(ticks, now)
        if len(wanted) < len(ticks):
            told = "schedule %s: nothing ran for a while; left out %d of its ticks"
            log.warning(told, schedule.name, len(ticks) - len(wanted))
        return replace(mark, after=ticks[-1], last=wanted[-1] if wanted else mark.last), wanted

    def _checked(self, schedule: Schedule, mark: Bookmark, now: int) -> Bookmark:
        if now - mark.seen >= DAY or mark.seen > now:
            mark = replace(mark, seen=now)
        if mark.after > now + SET_BACK:
            log.warning("schedule %s: the clock was set back far; it ticks from now on", schedule.name)
            return replace(mark, after=now)
        if mark.rule != schedule.rule:
            # It is another now, and what it would have done before has not been missed. During a deployment both
            # are about: each host goes on from where it began itself.
            return replace(mark, rule=schedule.rule, after=max(mark.after, self._born or 0))
        return mark

    def _enqueue(self, schedule: Schedule, tick: int) -> None:
        options = Options(at=tick / SECOND, key=schedule.key(tick), unique_for=KEYED)
        try:
            self._client.enqueue(self._client.tasks[schedule.task], schedule.args, schedule.kwargs, options)
        except StoreError:
            raise
        except Exception as error:  # such as arguments that are too long for max_body, or the app's middleware
            known = isinstance(error, TarryError)
            log.error("schedule %s: %s", schedule.name, error, exc_info=None if known else error)

    def _keep(self, schedule: Schedule, mark: Bookmark, kept: Kept | None, now: int) -> None:
        was = None if kept is None else kept[1]
        moved = kept is None or mark != kept[0]
        if moved and not schedule_state.write(self._client.store, schedule.name, mark, was):
            # Somebody else moved it on, or paused it: look again.
            self._looks[schedule.name] = now
            return
        tick = schedule.timetable.next(max(now, mark.after))
        self._looks[schedule.name] = now + _LOOK if tick is None else min(tick, now + _LOOK)

    def _forget(self, kept: Mapping[str, Kept], schedules: Mapping[str, Schedule], now: int) -> None:
        for name, (mark, was) in kept.items():
            if name not in schedules and mark.seen < now - LEFT:
                with contextlib.suppress(StoreAway):
                    schedule_state.write(self._client.store, name, None, was)
        self._sweep = now + _LOOK
