"""A stored schedule as others see it."""

from msgspec import Struct

from tarry.model.duration import SECOND
from tarry.model.schedules import stored as rules
from tarry.model.schedules.stored import StoredSchedule


class ScheduleFacts(Struct, frozen=True):
    """A schedule that is kept in the store. Times are seconds since the epoch."""

    name: str
    task: str
    cron: str
    """Its expression: that of `cron=`; `@every 90s` and `@once ...` for the others."""
    zone: str
    catch_up: str
    jitter: float
    """Seconds."""
    until: float | None
    next: float | None
    """None: it is paused, or never ticks again."""
    last: float | None
    """The newest tick that became a job; None: none yet."""
    is_paused: bool
    problem: str
    """Why its jobs could not be made the last time; empty: they could."""
    created: float
    changed: float
    by: str
    """Who put it last; empty: not known."""


def schedule_facts(name: str, one: StoredSchedule, now: int) -> ScheduleFacts:
    """now: microseconds by the store's clock."""
    definition = one.definition
    try:
        next_tick, problem = rules.next_tick(name, one, now), one.problem
    except ValueError as error:  # a zone that is not known on this host
        next_tick, problem = None, str(error)
    return ScheduleFacts(
        name,
        definition.task,
        definition.expression,
        definition.zone,
        definition.catch_up,
        definition.jitter / SECOND,
        definition.until / SECOND or None,
        None if next_tick is None else next_tick / SECOND,
        one.last / SECOND or None,
        one.paused,
        problem,
        one.created / SECOND,
        one.changed / SECOND,
        one.by,
    )
