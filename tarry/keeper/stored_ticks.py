"""Turns the ticks of schedules that are kept in the store into jobs.

One host does it for all, and another one as soon as that holds no more. Two that do it at once do no harm: the job of a
tick holds a key that names the tick, and of two changes of a schedule the first wins. The order is: the jobs, the entry
of the next look, the schedule, and last the old entry goes. So whatever breaks off is done again.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tarry.client.client import Client
from tarry.errors import StoreAway, TarryError, UnknownTask
from tarry.keeper import schedule_runs, tick_jobs
from tarry.keeper.cron import guard
from tarry.keeper.schedule_clock import Mended, ScheduleClock
from tarry.keeper.tick_jobs import TickPlan
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import Job
from tarry.model.schedules import stored as rules
from tarry.model.schedules.stored import StoredSchedule
from tarry.store.queries import stored_schedules
from tarry.store.queries.missed_schedules import TickCounter, remove_stale_marks
from tarry.store.queries.stored_schedules import MARK, PREFIX, DueEntry, SeenSchedule
from tarry.store.rules import owner
from tarry.store.rules.partial_result import partial_result, reachable_part
from tarry.store.shared.backoff import Backoff
from tarry.tasks.arguments.codec import refuse_sealed
from tarry.tasks.definition import TaskDefinition

log = logging.getLogger("tarry.cron")

LOOK_EVERY = 4.0
"""Seconds after which a keeper has seen a new schedule at the latest."""
HELD_FOR = 10 * SECOND
"""How long a host may be silent before another one takes over."""
_RUBBISH_AFTER = HOUR
_PAGE = 200
"""Schedules that are read at once."""
_PAGES = 50
"""Pages of one call: the other chores get their turn."""
_HOLD = "schedules"

FindTask = Callable[[str], TaskDefinition[Any, Any] | None]


class StoredTicker:
    """`tick()` makes the jobs that are due by schedules in the store, and returns for how many seconds there is nothing
    to do. Not thread-safe. find: a task by its name, also an HTTP task; None: there is none. look_every: seconds after
    which it sees a new schedule at the latest."""

    def __init__(self, client: Client, find: FindTask | None = None, look_every: float = LOOK_EVERY) -> None:
        self._client, self._store = client, client.store
        self._find: FindTask = find or client.tasks.get
        self._name, self._look_every = owner.new_name(), look_every
        self._backoff = Backoff(log, "schedules in the store tick again")
        self._clock, self._counter = ScheduleClock(self._store), TickCounter(self._store)
        self._late: Iterator[Mended] | None = None
        """Those that are to be mended yet, after the clock was set back."""
        self._tidy_at = 0

    def tick(self) -> float:
        """Raises no error: logs it, and tries again soon."""
        return guard(self._tick, self._backoff)

    def _tick(self) -> float:
        self._follow_clock(self._client.clock.now())
        pause = self._make_due()
        return pause if self._late is None else 0.0

    def _make_due(self) -> float:
        for _ in range(_PAGES):
            now = self._client.clock.now()
            first = reachable_part(lambda: stored_schedules.due_entries(self._store, None, 1))
            if not first or first[0].at > now:
                return min(self._look_every, (first[0].at - now) / SECOND) if first else self._look_every
            if not self._holds(now) or not self._process_due(now):
                return 1.0
            self._tidy(now)
        return 0.0

    def _tidy(self, now: int) -> None:
        if self._tidy_at - HOUR <= now < self._tidy_at:
            return
        self._tidy_at = now + HOUR
        remove_stale_marks(self._store)

    def _follow_clock(self, now: int) -> None:
        # After an error it begins anew.
        late, self._late = self._late, None
        if late is None:
            if not self._clock.was_set_back(now) or not self._holds(now):
                return
            late = self._clock.find_late(now)
        for _ in range(_PAGES):
            if (page := next(late, None)) is None:
                return
            self._save([one for one, _ in page], {one.name: new for one, new in page}, [])
        self._late = late

    def close(self) -> None:
        """Lets another host take over at once; StoreError."""
        now = self._client.clock.now()
        self._store.hold(_HOLD, self._name, now, now)

    def _holds(self, now: int) -> bool:
        try:
            return self._store.hold(_HOLD, self._name, now + HELD_FOR, now)
        except StoreAway:
            # Of several stores: what the others have is due all the same.
            return True

    def _process_due(self, now: int) -> bool:
        """Whether anything was done."""
        after, done = None, False
        while True:
            page = reachable_part(lambda: stored_schedules.due_entries(self._store, after, _PAGE))  # noqa: B023
            entries = [entry for entry in page if entry.at <= now]
            done |= self._process(entries, now)
            if done or len(entries) < _PAGE:
                return done
            after = entries[-1]

    def _process(self, entries: Sequence[DueEntry], now: int) -> bool:
        due, rubbish = self._read(entries, now)
        changed = self._process_all(due, now)
        self._save(due, changed, rubbish)
        return bool(changed or rubbish)

    def _read(self, entries: Sequence[DueEntry], now: int) -> tuple[list[SeenSchedule], list[DueEntry]]:
        """The schedules that are due, and entries that no schedule names."""
        cells, away = partial_result(
            lambda: self._store.kv_read(stored_schedules.cells_of([entry.name for entry in entries]))
        )
        missing = away.missing if away is not None else {}
        due, rubbish = [], []
        for at, (entry, cell) in enumerate(zip(entries, cells, strict=True)):
            one = None if cell is None else stored_schedules.decode(self._store, entry.name, cell)
            if cell is not None and one is not None and stored_schedules.is_of(entry, one, cell):
                due.append(SeenSchedule(entry.name, entry, cell, one))
            # Somebody may just be about to write the schedule that names it.
            elif at not in missing and entry.at < now - _RUBBISH_AFTER:
                rubbish.append(entry)
        return due, rubbish

    def _process_all(self, due: Sequence[SeenSchedule], now: int) -> dict[str, StoredSchedule | None]:
        """What becomes of them, by name, once their jobs are stored; None: it goes."""
        changed: dict[str, StoredSchedule | None] = {}
        plans: list[TickPlan] = []
        jobs = self._ended_jobs(due)
        for one in due:
            try:
                if rules.is_forgotten(one.name, one.schedule, now):
                    changed[one.name] = None
                else:
                    plans.append(self._plan(one, jobs, now))
            except (ValueError, TarryError) as error:
                changed[one.name] = self._note_problem(one.name, one.schedule, error, now)
        for plan, made in zip(plans, tick_jobs.insert(self._client, plans), strict=True):
            runs = [*plan.after.runs, *made.runs]
            if made.failure is not None:
                # Ticks that are over are not tried again: a key is kept for a while only.
                so_far = rules.up_to(plan.after, made.runs[-1].tick, runs) if made.runs else plan.before
                changed[plan.name] = self._note_problem(plan.name, so_far, made.failure, now)
            else:
                changed[plan.name] = rules.with_runs(plan.name, plan.after, runs, now)
        return changed

    def _ended_jobs(self, due: Sequence[SeenSchedule]) -> Mapping[bytes, Job]:
        still_open = [run for one in due for run in one.schedule.runs if run.is_open]
        try:
            return schedule_runs.read_jobs(self._store, still_open) if still_open else {}
        except StoreAway:
            return {}

    def _plan(self, due: SeenSchedule, jobs: Mapping[bytes, Job], now: int) -> TickPlan:
        """ValueError: a zone that this host does not know. UnknownTask, ValueSealed. StoreError."""
        after, ticks = rules.due_ticks(due.name, due.schedule, now)
        after = replace(after, runs=schedule_runs.with_ends(after.runs, jobs))
        definition = due.schedule.definition
        task = self._find(definition.task) if ticks else None
        if ticks and task is None:
            raise UnknownTask(f"no app that runs here has a task {definition.task}")
        if ticks:
            refuse_sealed(definition.body, f"the call of schedule {due.name}")
        return TickPlan(due.name, due.schedule, after, ticks, task)

    def _note_problem(self, name: str, one: StoredSchedule, error: Exception, now: int) -> StoredSchedule:
        if str(error) != one.problem:
            log.error("schedule %s: %s", name, error)
        return rules.with_problem(one, str(error), now)

    def _save(
        self,
        due: Sequence[SeenSchedule],
        changed: Mapping[str, StoredSchedule | None],
        rubbish: Sequence[DueEntry],
    ) -> None:
        values = {
            name: None if one is None else stored_schedules.encode(self._store, name, one)
            for name, one in changed.items()
        }
        looks = {
            name: stored_schedules.entry_of(name, one, value)
            for name, one in changed.items()
            if one is not None and (value := values[name]) is not None
        }
        marks = [MARK + name for name, one in changed.items() if one is not None and rules.is_missed(one)]
        entries = [entry.cell for entry in looks.values() if entry is not None]
        self._store.kv_write([(cell, b"", None) for cell in (*entries, *marks)])
        saved = self._store.kv_write([(PREFIX + one.name, values[one.name], one.cell) for one in due])
        done = [one for one, is_saved in zip(due, saved, strict=True) if is_saved]
        # Of a schedule that somebody has changed meanwhile, that one has removed the entry, and ours is none.
        over = [one.entry if is_saved else looks.get(one.name) for one, is_saved in zip(due, saved, strict=True)]
        gone = [(entry.cell, entry.value) for entry in (*over, *rubbish) if entry is not None]
        gone += [(MARK + one.name, b"") for one in done if stored_schedules.loses_mark(one.schedule, changed[one.name])]
        self._store.kv_write([(cell, None, value) for cell, value in gone])
        self._counter.add((one.schedule, new) for one in done if (new := changed[one.name]) is not None)
