"""What is told of schedules in the store that make no jobs: by task, since people may put very many."""

from collections.abc import Iterator, Mapping

from tarry.alert.condition import MOST_DETAILS, Condition
from tarry.model.duration import MINUTE
from tarry.model.schedules import stored as rules
from tarry.model.schedules.schedule import LEFT_OUT
from tarry.model.schedules.stored import StoredSchedule
from tarry.model.values.console_paths import SCHEDULES, schedule_path
from tarry.store.queries.missed_schedules import MOST_READ, read_missed
from tarry.store.rules.base import Store

TRIED_FOR = MINUTE
"""Jobs that cannot be made are tried again: microseconds until that is told."""


def stored_schedule_conditions(store: Store) -> Iterator[Condition]:
    """One for each task; StoreError."""
    by_task: dict[str, dict[str, StoredSchedule]] = {}
    for name, one in read_missed(store).items():
        by_task.setdefault(one.definition.task, {})[name] = one
    for task, missed in by_task.items():
        yield _condition(task, missed)


def _condition(task: str, missed: Mapping[str, StoredSchedule]) -> Condition:
    number = len(missed)
    some = f"schedules of {task} in the store"
    are = "1 of the" if number == 1 else f"{number:,}{' or more' if number >= MOST_READ else ''} of the"
    return Condition(
        f"schedules {task}",
        f"{are} {some}: the newest tick made no job",
        f"the {some} make jobs again",
        "tarry schedules show NAME says why; to make up for one: tarry schedules run NAME",
        tuple(f"{name}: {_why(one)}" for name, one in list(missed.items())[:MOST_DETAILS]),
        task,
        where=schedule_path(next(iter(missed))) if number == 1 else SCHEDULES,
        holds=TRIED_FOR if all(one.problem_since for one in missed.values()) else 0,
        since=min(map(rules.missed_at, missed.values())),
    )


def _why(one: StoredSchedule) -> str:
    if one.problem:
        return one.problem
    return "left out, since nothing ran then" if rules.newest_end(one) == LEFT_OUT else "refused: the log says why"
