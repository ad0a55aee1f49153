"""The checker of histories: it finds nothing in good ones, and each fault that is put into one, by its own rule."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tarry.testing import history_check
from tarry.testing.history_check import (
    Died,
    Ended,
    FinalState,
    HistoryEvent,
    LeaseEnded,
    Put,
    PutUnknown,
    Rescheduled,
    RunAgain,
    Started,
    StepRan,
    StepRecorded,
    StoreRead,
    Withdrawn,
    check,
    read_ledgers,
)
from tests import seeds
from tests.testing.good_system import MS, good_history

History = list[HistoryEvent]


def rules(history: History, **options: Any) -> set[str]:
    return {violation.rule for violation in check(history, **options)}


@pytest.mark.parametrize("seed", range(seeds.seed(), seeds.seed() + 12))
def test_a_good_history_has_no_violation(seed: int) -> None:
    history = good_history(seed)
    assert [str(one) for one in check(history)] == []
    assert check(reversed(history)) == [], "in any order"


# A job of its own, which keeps every promise as it stands, and a change of it for each way to break one.

T = 100_000_000


def at(event: Any, milliseconds: float) -> Any:
    """The same event at another time."""
    time = T + round(milliseconds * MS)
    return replace(event, at=time, claimed=time) if isinstance(event, Started) else replace(event, at=time)


PUT = Put("x", T, due=T + 10 * MS, task="mail")
START = at(Started("x", 1, "a", 0, pid=7), 20)
END = at(Ended("x", 1, "a", 0, "done"), 30)
SETTLED = replace(END, settled=True)
FINAL = FinalState("x", "done", 1)
GOOD: History = [PUT, START, END, SETTLED, FINAL]

FAILED = replace(END, outcome="failed")
REFUSED = replace(FAILED, settled=True)
NEXT = at(Started("x", 2, "b", 0, pid=8), 40)
NEXT_END = at(Ended("x", 2, "b", 0, "done"), 50)
NEXT_FINAL = replace(FINAL, epoch=2)
REST: History = [NEXT, NEXT_END, NEXT_FINAL]
DIED = Died(T + 30 * MS, "a")
LEASE = LeaseEnded("a", T + 30 * MS)
AGAIN, MOVED, CANCELLED = RunAgain("x", T), Rescheduled("x", T, T + 25 * MS), Withdrawn("x", T)
READ = StoreRead(T + 60 * MS, kept=20 * MS)
RAN, RECORDED = StepRan("x", "pay", T), StepRecorded("x", "pay", T)

FINE: dict[str, History] = {
    "done": GOOD,
    "retried": [PUT, START, FAILED, REFUSED, *REST],
    "its worker died": [PUT, START, DIED, *REST],
    "its worker is known by its pid": [PUT, START, Died(DIED.at, pid=7), *REST],
    "it began while its worker was killed": [PUT, at(START, 31), DIED, *REST],
    "a death of its pid long before": [PUT, START, Died(T - 10**9, pid=7), at(DIED, 31), *REST],
    "its lease ended, and its end was refused": [PUT, START, LEASE, *REST, at(FAILED, 55)],
    "its lease ended before it began": [PUT, replace(START, at=T + 45 * MS), LEASE, *REST, at(FAILED, 55)],
    "a lease of that owner ended before": [PUT, START, END, at(LEASE, 10), FINAL],
    "put twice": [*GOOD, replace(PUT, at=T + 5 * MS, due=T + 90 * MS)],
    "put while it ran": [at(PUT, 25), *GOOD[1:]],
    "nobody knows whether it was put": [PutUnknown("x", T)],
    "ended and deleted": [PUT, START, END, READ],
    "cancelled and deleted": [PUT, at(CANCELLED, 5), READ],
    "not at its end": [PUT, FinalState("x", "ready", 0), replace(READ, drained=False)],
    "the store was not read": [PUT, READ, FinalState("x", "cancelled", 0)],
    "run by another program": [replace(PUT, logged=False), END, FINAL],
    "expired": [PUT, replace(SETTLED, outcome="expired"), FinalState("x", "cancelled", 1)],
    "poison": [PUT, START, DIED, at(Ended("x", 1, "a", 0, "dead", True), 35), FinalState("x", "dead", 1)],
    "cancelled while it ran": [PUT, START, at(CANCELLED, 25), END, FinalState("x", "cancelled", 1)],
    "cancelled as it was claimed": [PUT, at(CANCELLED, 15), replace(START, claimed=0), END, FINAL],
    "cancelled and run again": [PUT, START, at(CANCELLED, 25), at(AGAIN, 35), *REST, at(FAILED, 45)],
    "run again": [*GOOD[:-1], at(AGAIN, 35), *REST, replace(NEXT_END, settled=True)],
    "run before its time": [replace(PUT, due=T + 90 * MS), at(AGAIN, 15), *GOOD[1:]],
    "moved as it was claimed": [PUT, at(replace(MOVED, due=T + 90 * MS), 20), *GOOD[1:]],
    "a step that was not recorded": [*GOOD, at(RAN, 21), at(RAN, 22), at(RECORDED, 23)],
    "two steps": [*GOOD, at(RAN, 21), at(RECORDED, 22), at(replace(RAN, name="ship"), 23)],
}

FAULTS: dict[str, tuple[str, History]] = {
    "no end of it": ("lost", [PUT]),
    "gone, and nothing is deleted": ("lost", [PUT, START, END]),
    "deleted too soon": ("lost", [PUT, START, END, replace(READ, kept=31 * MS)]),
    "it failed, and is gone": ("lost", [PUT, START, FAILED, READ]),
    "ready at the end": ("unfinished", [PUT, FinalState("x", "ready", 0)]),
    "running at the end": ("unfinished", [PUT, START, FinalState("x", "running", 1)]),
    "two owners of an epoch": (
        "writer",
        [PUT, START, DIED, replace(NEXT, epoch=1), replace(NEXT_END, epoch=1), FINAL],
    ),
    "an attempt twice": ("writer", [PUT, START, at(END, 25), at(START, 28), FINAL]),
    "the epoch falls": (
        "epoch",
        [
            PUT,
            replace(START, epoch=2),
            replace(FAILED, epoch=2),
            replace(NEXT, epoch=1),
            replace(NEXT_END, epoch=1),
            FinalState("x", "dead", 2),
        ],
    ),
    "no attempt began": ("end", [PUT, END, FINAL]),
    "no attempt failed": ("end", [PUT, at(replace(FAILED, epoch=0), 15), *GOOD[1:]]),
    "another owner ended it": ("end", [PUT, START, replace(END, owner="b"), FINAL]),
    "ended before it began": ("end", [PUT, START, at(END, 15), FINAL]),
    "the attempt ended twice": ("twice", [*GOOD, at(END, 32)]),
    "it was settled twice": ("twice", [*GOOD, at(SETTLED, 32)]),
    "the job ended twice": ("twice", [*GOOD, at(Ended("x", 2, "b", 0, "cancelled", True), 32)]),
    "run again before its end": ("twice", [*GOOD, at(AGAIN, 25), at(Ended("x", 2, "b", 0, "dead", True), 32)]),
    "a late end was accepted": ("fence", [PUT, START, LEASE, *REST, at(REFUSED, 45)]),
    "began after it was done": ("after_end", [*GOOD[:-1], *REST]),
    "began after it was cancelled": ("after_end", [PUT, at(CANCELLED, 15), *GOOD[1:]]),
    "run again before, began after its end": ("after_end", [PUT, START, SETTLED, at(AGAIN, 25), *REST]),
    "run again too late": ("after_end", [PUT, START, SETTLED, *REST, at(AGAIN, 45)]),
    "an older epoch at the end": ("state", [PUT, START, FAILED, *REST[:2], FinalState("x", "dead", 1)]),
    "done, and never began": ("state", [PUT, FINAL]),
    "done, and failed": ("state", [PUT, START, FAILED, FINAL]),
    "done in another epoch": ("state", [PUT, START, END, NEXT_FINAL]),
    "dead, and the store says cancelled": (
        "state",
        [PUT, START, replace(SETTLED, outcome="dead"), FinalState("x", "cancelled", 1)],
    ),
    "done, and the store says dead": ("state", [PUT, START, SETTLED, FinalState("x", "dead", 1)]),
    "before its time": ("early", [replace(PUT, due=T + 25 * MS), *GOOD[1:]]),
    "put while it ran, before its time": ("early", [at(replace(PUT, due=T + 25 * MS), 25), *GOOD[1:]]),
    "before its new time": ("early", [PUT, at(MOVED, 15), *GOOD[1:]]),
    "claimed before its time": ("early", [PUT, replace(START, claimed=T + 5 * MS), *GOOD[2:]]),
    "retried too soon": ("early", [PUT, START, FAILED, replace(REFUSED, due=T + 45 * MS), *REST]),
    "run again long ago": ("early", [PUT, at(AGAIN, 5), at(MOVED, 15), *GOOD[1:]]),
    "two attempts at once": ("overlap", [PUT, START, at(FAILED, 45), *REST]),
    "no end of the first": ("overlap", [PUT, START, *REST]),
    "within the lease": ("overlap", [PUT, START, at(LEASE, 45), *REST]),
    "before the death": ("overlap", [PUT, START, at(DIED, 45), *REST]),
    "a recorded step ran": ("step", [*GOOD, at(RAN, 21), at(RECORDED, 22), at(RAN, 23)]),
}


@pytest.fixture(scope="module")
def around() -> History:
    """The history of others."""
    return good_history(0)


@pytest.mark.parametrize("name", FINE)
def test_what_may_be_is_no_violation(around: History, name: str) -> None:
    assert [str(one) for one in check([*around, *FINE[name]])] == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_by_its_rule_alone(around: History, name: str) -> None:
    rule, history = FAULTS[name]
    found = check([*around, *history])
    assert [(one.rule, one.job) for one in found] == [(rule, "x")], found
    (line,) = str(found[0]).splitlines()
    assert line.startswith(f"{rule}: x: ")


BY = 5
TOLERATED: dict[str, History] = {
    "early": [replace(PUT, due=T + (20 + BY) * MS), *GOOD[1:]],
    "overlap": [PUT, START, at(FAILED, 40 + BY), *REST],
    "end": [PUT, START, at(END, 20 - BY), FINAL],
    "step": [*GOOD, at(RECORDED, 22), at(RAN, 22 + BY)],
    "after_end": [PUT, at(CANCELLED, 20 - BY), *GOOD[1:]],
    "fence": [PUT, START, LEASE, *REST, at(REFUSED, 40 + BY)],
    "lost": [PUT, START, END, replace(READ, kept=(30 + BY) * MS)],
    "epoch": [
        PUT, replace(START, epoch=2), at(replace(FAILED, epoch=2), 20), at(replace(NEXT, epoch=1), 20 + BY),
        replace(NEXT_END, epoch=1), FinalState("x", "dead", 2),
    ],
}  # fmt: skip


@pytest.mark.parametrize("rule", TOLERATED)
def test_clocks_may_differ_by_the_tolerance(rule: str) -> None:
    history = [*TOLERATED[rule], READ] if rule != "lost" else TOLERATED[rule]
    assert rules(history, tolerance=BY * MS - 1) == {rule}
    assert rules(history, tolerance=BY * MS) == set()


def test_each_that_runs_beside_a_long_one_is_told() -> None:
    beside = [at(replace(NEXT, epoch=2), 25), at(replace(NEXT_END, outcome="failed"), 26)]
    last = [replace(one, epoch=3) for one in (NEXT, NEXT_END, NEXT_FINAL)]
    assert [one.rule for one in check([PUT, START, at(FAILED, 60), *beside, *last])] == ["overlap"] * 2


def test_of_a_rule_only_so_many_are_told() -> None:
    history: History = [replace(PUT, job=str(number)) for number in range(1000)]
    assert len(check([*history, READ])) == history_check.MOST_OF_A_RULE


# Ledgers


def write(path: Path, history: History) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in history))
    return path


def test_ledgers_are_read_and_what_is_torn_is_left_out(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a", GOOD), write(tmp_path / "b", RETRIED)
    torn = msgspec.json.encode(START)
    first.write_bytes(first.read_bytes() + torn[:20])
    second.write_bytes(torn[:9] + b"\xff\n" + torn[:9] + torn + b"\n" + second.read_bytes() + torn)
    skipped: list[str] = []
    assert list(read_ledgers([first, second], skipped)) == [*GOOD, *RETRIED]
    assert skipped == [f"{first}:6", f"{second}:1", f"{second}:2", f"{second}:{3 + len(RETRIED)}"]


RETRIED = FINE["retried"]


def test_the_command_tells_violations_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path / "good", GOOD)
    assert history_check.main([str(good)]) == 0
    assert capsys.readouterr().out == "5 events, 1 jobs, 1 attempts: 0 violations\n"
    bad = write(tmp_path / "bad", [replace(PUT, due=T + 25 * MS)])
    with bad.open("ab") as file:
        file.write(b'{"ev')
    assert history_check.main([str(bad), str(write(tmp_path / "rest", GOOD[1:]))]) == 1
    violation, counts = capsys.readouterr().out.splitlines()
    assert violation.startswith("early: x: it began 5000 microseconds early: Started(job='x', epoch=1, owner='a'")
    assert counts == f"5 events, 1 jobs, 1 attempts: 1 violations (early 1); 1 lines skipped, the first at {bad}:2"
    assert history_check.main(["--tolerance", "5ms", str(bad), str(tmp_path / "rest")]) == 0


def test_a_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history_check.main([str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err
    assert history_check.main(["--tolerance", "soon", str(write(tmp_path / "good", GOOD))]) == 2
    assert "no duration" in capsys.readouterr().err
