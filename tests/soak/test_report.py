"""What a soak prints: what rises fails it, as what is violated does, and the last table has the steepest of each."""

import random

import pytest

from tarry.testing.history_check import Put, Violation
from tests.soak.report import report
from tests.soak.running import Outcome, Plan
from tests.soak.series import FEW, MEMORY, ROWS, Bounds, SeriesSet

MB = 2.0**20
PLAN = Plan("redis", 3600.0, 7, 4.0)


def outcome(
    series: dict[str, tuple[Bounds, float, float]],
    violations: tuple[str, ...] = (),
    excused: tuple[Violation, ...] = (),
) -> Outcome:
    """Of series by name: their bounds, level, and rise in an hour; sampled every 5 s for an hour."""
    found, dice = SeriesSet(), random.Random(1)
    for number in range(720):
        for name, (bounds, level, per_hour) in series.items():
            noise = dice.gauss(0, 0.001 * level)
            found.add(name, bounds, 5.0 * number, level + noise + per_hour * number / 720)
    return Outcome(list(violations), list(excused), found, {"kill_worker": 3, "reload": 2}, 18_000, 0.1, 0.02, 0, [])


STEADY = {"memory of worker 12": (MEMORY, 50 * MB, 0.0), "rows of job": (ROWS, 600.0, 0.0)}


def test_what_is_steady_passes() -> None:
    lines, status = report(PLAN, outcome(STEADY))
    assert status == 0
    assert lines[-1] == "redis: passed: 0 violations, 0 excused, 0 rising"
    assert "troubles: 5: kill_worker 3, reload 2" in lines


@pytest.mark.parametrize("per_hour", [5 * MB, 50 * MB])
def test_a_leak_of_one_process_fails(per_hour: float) -> None:
    lines, status = report(PLAN, outcome(STEADY | {"memory of worker 13": (MEMORY, 50 * MB, per_hour)}))
    assert status == 1
    assert "RISING memory of worker 13" in lines
    assert [line for line in lines if line.startswith("RISING")] == ["RISING memory of worker 13"]


def test_a_violation_fails() -> None:
    lines, status = report(PLAN, outcome(STEADY, ("lost: 7f",)))
    assert (status, lines[0]) == (1, "VIOLATION lost: 7f")


def test_what_a_server_may_forget_is_counted_and_does_not_fail() -> None:
    excused = Violation("writer", "7f", "two attempts", Put("7f", 1))
    lines, status = report(PLAN, outcome(STEADY, (), (excused,)))
    assert (status, lines[0]) == (0, f"excused {excused}")
    assert lines[-1] == "redis: passed: 0 violations, 1 excused, 0 rising"


def test_a_process_that_was_replaced_soon_is_not_judged() -> None:
    found = outcome(STEADY)
    for number in range(200):
        found.series.add("memory of worker 14", MEMORY, 5.0 * number, 50 * MB + number * MB)
    lines, status = report(PLAN, found)
    assert status == 0
    assert not [line for line in lines if "worker 14" in line]


def test_the_last_table_has_the_steepest_of_each_kind() -> None:
    series = {
        "memory of worker 12": (MEMORY, 50 * MB, 0.0),
        "memory of worker 13": (MEMORY, 50 * MB, 4 * MB),
        "memory of keeper 14": (MEMORY, 50 * MB, 0.0),
        "descriptors of worker 12": (FEW, 20.0, 0.0),
        "descriptors of keeper 14": (FEW, 20.0, 1.0),
        "rows of job": (ROWS, 600.0, 20.0),
        "rows of owner": (ROWS, 10.0, 0.0),
    }
    lines, _ = report(PLAN, outcome(series))
    starts = [number for number, line in enumerate(lines) if line.startswith("| series")]
    names = [line.split("|")[1].strip() for line in lines[starts[-1] + 2 :] if line.startswith("|")]
    assert names == ["descriptors of keeper 14", "memory of keeper 14", "memory of worker 13", "rows of job"]
