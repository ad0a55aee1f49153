"""When attempts are over: by the moment at which they began, not by that at which somebody looked."""

from collections.abc import Sequence

import pytest

from tarry.model.job import Job
from tarry.store.rules import ids
from tarry.tasks.running import Running
from tarry.worker.deadlines import MOST_ENDED, Deadlines
from tests.worker.manual_pump import TASKS

TIMEOUT = 0.5
"""Of the task "timed"."""


def attempts(count: int) -> list[Running]:
    return [Running(Job(ids.uuid7(), "timed", b"[]", "default"), TASKS["timed"]) for _ in range(count)]


def overdue(deadlines: Deadlines, now: float) -> Sequence[Running]:
    return list(deadlines.take_overdue(now, lambda running: True))


def test_one_that_stood_in_line_has_its_time_from_when_it_began_and_not_more() -> None:
    deadlines = Deadlines()
    (running,) = attempts(1)
    deadlines.watch([running], 10.0)
    assert deadlines.next_due() == 10.0 + TIMEOUT
    running.started = 10.25
    assert overdue(deadlines, 10.5) == []
    assert deadlines.next_due() == 10.25 + TIMEOUT
    assert overdue(deadlines, 10.74) == []
    assert overdue(deadlines, 10.75) == [running]
    assert deadlines.next_due() is None


def test_one_that_still_stands_in_line_is_looked_at_before_its_time_can_be_over() -> None:
    deadlines = Deadlines()
    (running,) = attempts(1)
    deadlines.watch([running], 10.0)
    assert overdue(deadlines, 10.6) == []
    running.started = 10.7
    moment = deadlines.next_due()
    assert moment is not None
    assert moment <= 10.7 + TIMEOUT
    assert overdue(deadlines, moment) == []
    assert deadlines.next_due() == pytest.approx(10.7 + TIMEOUT)


def test_whoever_waits_is_told_of_an_earlier_deadline_alone() -> None:
    deadlines = Deadlines()
    told: list[float | None] = []
    deadlines.on_sooner = lambda: told.append(deadlines.next_due())
    late, early, later = attempts(3)
    deadlines.watch([late], 20.0)
    deadlines.watch([early], 10.0)
    deadlines.watch([later], 30.0)
    assert told == [20.5, 10.5]
    for running in (late, early, later):
        running.started = 5.0
    assert overdue(deadlines, 25.0) == [early, late], "in the order of their ends"


def test_attempts_that_have_ended_do_not_stay_until_their_time_is_over() -> None:
    deadlines = Deadlines()
    alive, ended = attempts(2), attempts(3 * MOST_ENDED)
    for running in (*alive, *ended):
        deadlines.watch([running], 10.0)
        running.started = 10.0
        assert list(deadlines.take_overdue(10.1, alive.__contains__)) == []
    left = list(deadlines.take_overdue(11.0, lambda running: True))
    assert left[:2] == alive
    assert len(left) <= 2 * len(alive) + MOST_ENDED + 1
