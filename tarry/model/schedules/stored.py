"""A schedule that is kept in the store, how far it has come, and what changes it. Pure."""

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.model.duration import DAY, HOUR, SECOND
from tarry.model.job import StoredTime
from tarry.model.schedules.definition import ScheduleDefinition
from tarry.model.schedules.schedule import REFUSED, ScheduledRun, StoredRuns, left_out, newest

KEPT_FOR = 7 * DAY
"""How long a schedule is kept after its last tick, microseconds."""
ENDS_EVERY = HOUR // 2
"""The ends of its jobs are looked for this often: twice while the job of a tick is kept after its end."""
FIRST_PAUSE, LONGEST_PAUSE = 5 * SECOND, HOUR
"""Before another try of what a keeper cannot do, microseconds."""
MAX_AHEAD = DAY
"""A time further in the future was written with a wrong clock, microseconds."""
_LONGEST_PROBLEM = 500


class StoredSchedule(Struct, frozen=True, omit_defaults=True):
    """Times are microseconds since the epoch; 0: none."""

    definition: ScheduleDefinition
    created: StoredTime = 0
    changed: StoredTime = 0
    """When somebody put, paused or resumed it last."""
    by: Annotated[str, Meta(max_length=200)] = ""
    """Who put it last."""
    look: StoredTime = 0
    """When a keeper looks at it next; its entry among those that are due is for this time."""
    after: StoredTime = 0
    """All ticks up to this time are done."""
    last: StoredTime = 0
    """The newest tick that became a job."""
    paused: bool = False
    problem: Annotated[str, Meta(max_length=_LONGEST_PROBLEM)] = ""
    """Why its jobs could not be made the last time; empty: they could."""
    problem_since: StoredTime = 0
    runs: StoredRuns = []
    """The last ones, the oldest first."""


def put(name: str, old: StoredSchedule | None, definition: ScheduleDefinition, now: int, by: str) -> StoredSchedule:
    """The schedule with this definition, in place of the old one; the old one itself if that has it already.
    ValueError if it has no tick after now."""
    if old is not None and old.definition == definition and old.after <= now + MAX_AHEAD:
        return old
    base = (
        StoredSchedule(definition, created=now)
        if old is None
        else replace(old, definition=definition, problem="", problem_since=0)
    )
    if old is None or not _ticks_alike(old.definition, definition) or old.after > now + MAX_AHEAD:
        # Ticks of a new rule in the past were not missed.
        base = replace(base, after=now)
    new = _with_look(name, replace(base, changed=now, by=by), now)
    if definition.schedule(name).timetable.next(base.after) is None:
        raise ValueError(f"schedule {name}: no tick is left of {definition.expression!r}: see its time, and until=")
    return new


def _ticks_alike(one: ScheduleDefinition, other: ScheduleDefinition) -> bool:
    return (one.expression, one.zone) == (other.expression, other.zone)


def pause(name: str, one: StoredSchedule, now: int) -> StoredSchedule:
    """Paused until it is resumed."""
    return one if one.paused else _with_look(name, replace(one, paused=True, changed=now), now)


def resume(name: str, one: StoredSchedule, now: int) -> StoredSchedule:
    """It ticks from now on: what fell into the pause is skipped."""
    if not one.paused:
        return one
    return _with_look(name, replace(one, paused=False, after=now, changed=now, problem="", problem_since=0), now)


def on_time(name: str, one: StoredSchedule, now: int) -> StoredSchedule:
    """The schedule, where it came further than the clock is: it ticks from now on; else as it is, unless it would be
    looked at too late. ValueError: a zone that is not known here."""
    after = now if one.after > now + MAX_AHEAD else one.after
    new = _with_look(name, replace(one, after=after), now)
    return new if after != one.after or new.look < one.look else one


def missed_at(one: StoredSchedule) -> int:
    """When its newest tick made no job, or since when its jobs cannot be made; 0: neither."""
    last = one.runs[-1] if one.runs else None
    return one.problem_since or (last.tick if last is not None and last.is_missed else 0)


def is_missed(one: StoredSchedule) -> bool:
    """Whether it makes no jobs now though it is not paused."""
    return not one.paused and missed_at(one) > 0


def newest_end(one: StoredSchedule) -> str:
    """What became of its newest run; empty: it is under way, or there is none."""
    return one.runs[-1].end if one.runs else ""


def next_tick(name: str, one: StoredSchedule, now: int) -> int | None:
    """The tick that comes next; None: it is paused, or none comes any more."""
    if one.paused:
        return None
    return one.definition.schedule(name).timetable.next(max(now, one.after))


def is_forgotten(name: str, one: StoredSchedule, now: int) -> bool:
    """Whether its last tick was so long ago that it goes."""
    if one.paused or now < one.after + KEPT_FOR:
        return False
    return one.definition.schedule(name).timetable.next(one.after) is None


def due_ticks(name: str, one: StoredSchedule, now: int) -> tuple[StoredSchedule, list[int]]:
    """How far it has come once the jobs of the due ticks are made, and these ticks."""
    ticks = [] if one.paused else one.definition.schedule(name).ticks(one.after, now)
    if not ticks:
        return one, []
    wanted = list(one.definition.schedule(name).wanted(ticks, now))
    dropped = ticks[: len(ticks) - len(wanted)]
    runs = [*one.runs, left_out(dropped)] if dropped else one.runs
    return replace(one, after=ticks[-1], last=wanted[-1] if wanted else one.last, runs=runs), wanted


def with_runs(name: str, one: StoredSchedule, runs: list[ScheduledRun], now: int) -> StoredSchedule:
    """The schedule with these runs, all that it has, and the time of the next look."""
    refused = any(run.end == REFUSED for run in runs[len(one.runs) :])
    problem = "" if not refused else "the call was refused: the keeper's log says why"
    return _with_look(name, replace(one, runs=newest(runs), problem=problem, problem_since=0), now)


def up_to(one: StoredSchedule, tick: int, runs: list[ScheduledRun]) -> StoredSchedule:
    """The schedule of which the ticks up to this one are over, with these runs."""
    return replace(one, after=tick, last=tick, runs=newest(runs))


def with_problem(one: StoredSchedule, problem: str, now: int) -> StoredSchedule:
    """Nothing is done: it is tried again, and what was due then counts as missed."""
    since = one.problem_since or now
    pause = max(FIRST_PAUSE, min(LONGEST_PAUSE, (now - since) // 2))
    return replace(one, problem=problem[:_LONGEST_PROBLEM], problem_since=since, look=now + pause)


def _with_look(name: str, one: StoredSchedule, now: int) -> StoredSchedule:
    times = [now + ENDS_EVERY] if any(run.is_open for run in one.runs) else []
    if not one.paused:
        tick = one.definition.schedule(name).timetable.next(one.after)
        times.append(one.after + KEPT_FOR if tick is None else tick)
    # Never at a time that has come: the entry of the present look goes after this one is there.
    return replace(one, look=max(now + 1, min(times)) if times else 0)
