"""What comes of a server that forgets what it accepted just before its death is excused, and nothing else."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tarry.testing import history_check
from tarry.testing.history_check import (
    Ended,
    FinalState,
    HistoryEvent,
    LimitSet,
    Put,
    RunAgain,
    Started,
    StepRan,
    StepRecorded,
    StoreDied,
    StoreRead,
    Violation,
    Withdrawn,
    check,
)

History = list[HistoryEvent]
MS = 1000
T = 100_000_000
TOLERANCE = 10 * MS
# The server dies at 1000 ms, and forgets what it accepted from 400 ms on.
DIED = StoreDied(T + 1000 * MS, 600 * MS)


def put(id: str = "x", at: float = 0, **fields: Any) -> Put:
    return Put(id, T + round(at * MS), task="mail", **fields)


def attempt(epoch: int, start: float, end: float, *, job: str = "x", owner: str = "a", **fields: Any) -> History:
    """One that was claimed when it began, or at `claimed`, and ended."""
    outcome, claimed = fields.get("outcome", "done"), fields.get("claimed", start)
    began, over = T + round(start * MS), T + round(end * MS)
    return [
        Started(job, epoch, owner, began, claimed=T + round(claimed * MS)),
        Ended(job, epoch, owner, over, outcome),
    ]


def settled(end: float, outcome: str = "done", epoch: int = 1, owner: str = "a", **fields: Any) -> Ended:
    return Ended("x", epoch, owner, T + round(end * MS), outcome, settled=True, **fields)


FINAL = FinalState("x", "done", 1)
LATE = attempt(1, 2000, 2100, owner="b")
"""The second attempt, after the server has come back."""
TWICE: History = [put(), *attempt(1, 900, 950), *LATE, FINAL]
ONE = LimitSet("task:mail", T, most=1)

EXCUSED: dict[str, tuple[set[str], History]] = {
    "claimed twice": ({"writer"}, TWICE),
    "claimed twice by the same owner": (
        {"writer", "twice"},
        [put(), *attempt(1, 900, 950), *attempt(1, 2000, 2100), FINAL],
    ),
    "it ended after the death": ({"writer"}, [put(), *attempt(1, 900, 1500), *LATE, FINAL]),
    "it still ran": ({"writer", "overlap"}, [put(), *attempt(1, 900, 2050), *LATE, FINAL]),
    "it was claimed, and began after the other one": (
        {"writer", "overlap"},
        [put(), *attempt(1, 2050, 2070, claimed=990), *LATE, FINAL],
    ),
    "two attempts are forgotten": (
        {"writer", "epoch", "state"},
        [put(), *attempt(1, 500, 550, outcome="failed"), *attempt(2, 900, 950, owner="c"), *LATE, FINAL],
    ),
    "the job was cancelled then": (
        {"state"},
        [put(), *attempt(1, 900, 950), Withdrawn("x", T + 2000 * MS), FinalState("x", "cancelled", 0)],
    ),
    "an end was accepted": ({"fence", "writer", "epoch", "state"}, [
        put(), *attempt(1, 500, 550, outcome="failed"), *attempt(2, 900, 950, owner="c"), *LATE,
        settled(2100, owner="b"), FINAL,
    ]),
    "an outcome is forgotten": (
        {"after_end"},
        [put(), *attempt(1, 100, 900), settled(910), *attempt(2, 2000, 2100, owner="b"), replace(FINAL, epoch=2)],
    ),
    "the job ends once more": (
        {"after_end", "twice"},
        [
            put(), *attempt(1, 100, 900), settled(910), *attempt(2, 2000, 2100, owner="b"),
            settled(2110, epoch=2, owner="b"), replace(FINAL, epoch=2),
        ],
    ),
    "a retry was put off": (
        {"early"},
        [
            put(), *attempt(1, 100, 900, outcome="failed"), settled(910, "failed", due=T + 9000 * MS),
            *attempt(2, 2000, 2100, owner="b"), replace(FINAL, epoch=2),
        ],
    ),
    "another one has its place": (
        {"writer", "limit"},
        [
            ONE, put(), *attempt(1, 900, 2050), put("y"), *attempt(1, 2000, 2200, job="y"), FinalState("y", "done", 1),
            *attempt(1, 2300, 2400, owner="b"), FINAL,
        ],
    ),
    "the rate has forgotten it": (
        {"writer", "rate"},
        [
            LimitSet("task:mail", T, count=1, period=1500 * MS),
            put(), *attempt(1, 900, 950), put("y"), *attempt(1, 2000, 2200, job="y"), FinalState("y", "done", 1),
            *attempt(1, 4000, 4100, owner="b"), FINAL,
        ],
    ),
    "a line is run through again": (
        {"writer", "order"},
        [
            put(order="l"), *attempt(1, 500, 550), *LATE, FINAL,
            put("y", 10, order="l"), *attempt(1, 900, 950, job="y"), *attempt(1, 2200, 2300, job="y", owner="b"),
            FinalState("y", "done", 1),
        ],
    ),
    "the clock of its worker is behind": ({"writer"}, [put(), *attempt(1, 391, 450), *LATE, FINAL]),
}  # fmt: skip


def judged(history: History, *deaths: StoreDied, tolerance: int = TOLERANCE) -> tuple[set[str], set[str]]:
    """The rules that are violated, and those that are excused."""
    excused: list[Violation] = []
    found = check([*history, *deaths], tolerance=tolerance, excused=excused)
    return {one.rule for one in found}, {one.rule for one in excused}


@pytest.mark.parametrize("name", EXCUSED)
def test_what_a_server_has_forgotten_is_excused(name: str) -> None:
    rules, history = EXCUSED[name]
    assert judged(history, DIED) == (set(), rules)
    assert judged(list(reversed(history)), DIED) == (set(), rules), "in any order"


@pytest.mark.parametrize("name", EXCUSED)
@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param((), id="no server died"),
        pytest.param((replace(DIED, forgets=0),), id="a store that forgets nothing"),
        pytest.param((replace(DIED, at=DIED.at - 10_000 * MS),), id="long before"),
        pytest.param((replace(DIED, at=DIED.at + 10_000 * MS),), id="long after"),
    ],
)
def test_elsewhere_the_same_is_a_violation(name: str, deaths: tuple[StoreDied, ...]) -> None:
    rules, history = EXCUSED[name]
    assert judged(history, *deaths) == (rules, set())


KEPT: dict[str, tuple[str, History]] = {
    "claimed before the window": ("writer", [put(), *attempt(1, 389, 450), *LATE, FINAL]),
    "both before the death": ("writer", [put(), *attempt(1, 800, 850), *attempt(1, 900, 950, owner="b"), FINAL]),
    "both before the death, and forgotten": (
        "writer",
        [put(), *attempt(1, 800, 850), *attempt(1, 900, 950, owner="b"), *attempt(1, 2000, 2100, owner="c"), FINAL],
    ),
    "both after the death": ("writer", [put(), *attempt(1, 1100, 1150), *LATE, FINAL]),
    "three times": ("writer", [*TWICE, *attempt(1, 3000, 3100, owner="c")]),
    "an end too many": (
        "twice",
        [put(), *attempt(1, 900, 950), *attempt(1, 2000, 2100), FINAL, attempt(1, 0, 2150)[1]],
    ),
    "a forgotten attempt has an end too many": (
        "twice",
        [put(), *attempt(1, 900, 950), attempt(1, 0, 960)[1], FinalState("x", "cancelled", 0)],
    ),
    "its epoch shows that it was not forgotten": (
        "overlap",
        [put(), *attempt(1, 900, 2050), *attempt(2, 2000, 2100, owner="b"), replace(FINAL, epoch=2)],
    ),
    "the outcome came before the window": (
        "after_end",
        [put(), *attempt(1, 100, 350), settled(389), *attempt(2, 2000, 2100, owner="b"), replace(FINAL, epoch=2)],
    ),
    "a cancel": (
        "after_end",
        [put(), Withdrawn("x", T + 900 * MS), *attempt(1, 2000, 2100), FINAL],
    ),
    "a put": ("lost", [put(at=900), StoreRead(T + 5000 * MS)]),
    "a put whose attempt is forgotten": ("lost", [put(at=800), attempt(1, 900, 950)[0], StoreRead(T + 5000 * MS)]),
    "a key": (
        "key",
        [
            put(key="k"), *attempt(1, 900, 2050), put("y", 950, key="k"), *attempt(1, 2000, 2200, job="y"),
            FINAL, FinalState("y", "done", 1),
        ],
    ),
    "a key of a job that is not told to be cancelled": (
        "key",
        [
            put(key="k"), *attempt(1, 900, 2050), FinalState("x", "cancelled", 0),
            put("y", 1900, key="k"), *attempt(1, 2000, 2200, job="y"), FinalState("y", "done", 1),
        ],
    ),
    "a step": (
        "step",
        [
            *TWICE, StepRan("x", "pay", T + 910 * MS), StepRecorded("x", "pay", T + 920 * MS),
            StepRan("x", "pay", T + 2010 * MS),
        ],
    ),
    "unfinished": (
        "unfinished",
        [put(), *attempt(1, 900, 950), FinalState("x", "ready", 0), StoreRead(T + 5000 * MS)],
    ),
    "the limit is broken without it": (
        "limit",
        [
            ONE, put(), *attempt(1, 900, 2050), *attempt(1, 2300, 2400, owner="b"), FINAL,
            put("y"), *attempt(1, 2000, 2200, job="y"), FinalState("y", "done", 1),
            put("z"), *attempt(1, 2060, 2150, job="z"), FinalState("z", "done", 1),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_what_is_not_forgotten_stays_a_violation(name: str) -> None:
    rule, history = KEPT[name]
    assert rule in judged(history, DIED)[0]


def test_each_death_excuses_what_it_made_the_server_forget() -> None:
    again = replace(DIED, at=T + 2500 * MS)
    thrice = [*TWICE, *attempt(1, 3000, 3100, owner="c")]
    assert judged(thrice, DIED, again) == (set(), {"writer"})
    assert judged(thrice, DIED) == ({"writer"}, set())
    assert judged(thrice, again) == ({"writer"}, set())


def test_what_was_run_again_by_hand_is_excused_as_well() -> None:
    by_hand = [RunAgain("x", T + 1900 * MS), *attempt(2, 3000, 3100, owner="c"), replace(FINAL, epoch=2)]
    assert judged([*TWICE[:-1], *by_hand], DIED) == (set(), {"writer"})


def test_what_is_excused_does_not_hide_what_is_not() -> None:
    """Though only so many of a rule are told."""
    forgotten = [replace(event, job=f"x{number}") for number in range(300) for event in TWICE]
    wrong = [replace(event, job="y") for event in KEPT["both after the death"][1]]
    excused: list[Violation] = []
    found = check([*forgotten, *wrong, DIED], tolerance=TOLERANCE, excused=excused)
    assert [(one.rule, one.job) for one in found] == [("writer", "y")]
    assert len(excused) == 300


def test_the_command_tells_how_much_is_excused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = tmp_path / "ledger"
    ledger.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in [*TWICE, DIED]))
    assert history_check.main([str(ledger)]) == 0
    said = "7 events, 1 jobs, 2 attempts: 0 violations; 1 excused (writer 1): a server that died forgot them\n"
    assert capsys.readouterr().out == said
