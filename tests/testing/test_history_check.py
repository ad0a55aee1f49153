"""The checker of histories: it finds nothing in good ones, and each fault that is put into one, by its own rule."""

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tarry.model.job import Job
from tarry.store.opening import open_store
from tarry.testing import history_check
from tarry.testing.history_check import (
    Died,
    Ended,
    FinalState,
    FlowEnded,
    HistoryEvent,
    HistorySum,
    LeaseEnded,
    Leftover,
    LimitSet,
    NodeOf,
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
from tarry.testing.job_history import KILL_TAKES
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
    "a death of its pid long before": [PUT, START, Died(T - 5 * KILL_TAKES, pid=7), at(DIED, 31), *REST],
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
    "claimed by a clock that is behind": [PUT, replace(START, claimed=T + 5 * MS), *GOOD[2:]],
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
    "retried too soon": ("early", [PUT, START, FAILED, replace(REFUSED, due=T + 45 * MS), *REST]),
    "run again long ago": ("early", [PUT, at(AGAIN, 5), at(MOVED, 15), *GOOD[1:]]),
    "two attempts at once": ("overlap", [PUT, START, at(FAILED, 45), *REST]),
    "no end of the first": ("overlap", [PUT, START, *REST]),
    "within the lease": ("overlap", [PUT, START, at(LEASE, 45), *REST]),
    "a death of its pid, long ago": ("overlap", [PUT, START, Died(T - 5 * KILL_TAKES, pid=7), *REST]),
    "before the death": ("overlap", [PUT, START, at(DIED, 45), *REST]),
    "a recorded step ran": ("step", [*GOOD, at(RAN, 21), at(RECORDED, 22), at(RAN, 23)]),
}


# Several jobs.


def job(id: str, start: float, end: float | None, **put: Any) -> History:
    """One that was put at 10 ms, and is done."""
    given = replace(at(Put(id, 0, task="mail", queue="q"), put.pop("put", 10)), **put)
    began = at(Started(id, 1, f"w {id}", 0), start)
    ended = [] if end is None else [at(Ended(id, 1, began.owner, 0, "done"), end)]
    return [given, began, *ended, FinalState(id, "done", 1)]


def died(id: str, milliseconds: float) -> Any:
    return at(Died(0, f"w {id}"), milliseconds)


def again(id: str, start: float, end: float) -> History:
    """Its second attempt."""
    began = at(Started(id, 2, "w again", 0), start)
    return [began, at(Ended(id, 2, "w again", 0, "done"), end), FinalState(id, "done", 2)]


def put_with(*histories: History, **put: Any) -> History:
    """The histories, with these fields in each put."""
    return [replace(event, **put) if isinstance(event, Put) else event for history in histories for event in history]


def no_final(history: History) -> History:
    return [event for event in history if not isinstance(event, FinalState)]


def begin_late(history: History, milliseconds: float) -> History:
    """What was claimed as before began only then."""
    late = T + round(milliseconds * MS)
    return [replace(event, at=late) if isinstance(event, Started) else event for event in history]


ONE = LimitSet("task:mail", T, most=1)
FAST = LimitSet("task:mail", T, count=2, period=10 * MS)
EACH = LimitSet("each:mail", T, most=1)
FIRST, SECOND, THIRD = job("x", 20, 30), job("y", 30, 40), job("z", 35, 45)
KILLED = no_final(job("x", 20, None))
NODES: History = [NodeOf("f", "x"), NodeOf("f", "y", ("x",))]
OVER = FlowEnded("f", T + 40 * MS)
UNUSED: History = [at(Put("y", 0, "k", task="mail"), 25), FinalState("y", "cancelled", 0)]

FINE |= {
    "one after the other": [ONE, *FIRST, *SECOND],
    "no limit": [LimitSet("task:mail", T), *FIRST, *THIRD, *SECOND],
    "a limit of another queue": [replace(ONE, name="queue:other"), *SECOND, *THIRD],
    "a limit that was lifted": [ONE, at(replace(ONE, most=2), 32), *SECOND, *THIRD],
    "a limit that came later": [at(ONE, 36), *SECOND, *THIRD],
    "a limit that fell after the claim": [replace(ONE, most=2), at(ONE, 35.5), *SECOND, *begin_late(THIRD, 36)],
    "the place of one that died": [ONE, *KILLED, died("x", 29), *again("x", 50, 60), *SECOND],
    "two keys": [EACH, *job("x", 20, 30, lane="m"), *job("y", 25, 30, lane="n"), *job("z", 26, 30)],
    "not too fast": [FAST, *job("x", 20, 21), *job("y", 22, 23), *job("z", 30, 31)],
    "no rate before": [at(FAST, 21), *job("x", 20, 21), *job("y", 22, 23), *job("z", 24, 25)],
    "a key after an end": put_with(FIRST, job("y", 35, 40, put=31), key="k"),
    "a key of two tasks": [*put_with(FIRST, key="k"), *put_with(job("y", 25, 40), key="k", task="other")],
    "no key": [*FIRST, *job("y", 25, 40, put=15)],
    "a key of one that never ran": put_with(FIRST, UNUSED, key="k"),
    "a key of one that was told late": put_with(FIRST, job("y", 5, 8, put=25), key="k"),
    "a key of one that was run again": [
        *put_with(no_final(FIRST), job("y", 35, 40, put=33), key="k"),
        at(RunAgain("x", 0), 45),
        *again("x", 50, 60),
    ],
    "in order": put_with(FIRST, job("y", 30, 40, put=11), job("z", 45, 50, put=12), order="l"),
    "two lines": [*put_with(FIRST, order="l"), *job("y", 25, 40, put=11, order="m")],
    "put at the same moment": put_with(job("y", 30, 40), FIRST, order="l"),
    "put before, and due later": [
        *put_with(FIRST, order="l", due=T + 20 * MS),
        *job("y", 13, 15, put=12, order="l"),
    ],
    "in order after a crash": [
        *put_with(KILLED, job("y", 70, 80, put=11), order="l"),
        died("x", 29),
        *again("x", 50, 60),
    ],
    "a flow": [*NODES, *FIRST, *SECOND, OVER],
    "a parent that was cancelled": [*NODES, at(Put("x", 0), 10), FinalState("x", "cancelled", 0), *SECOND, OVER],
    "a parent that is dead": [
        *NODES, *KILLED, at(Ended("x", 1, "w x", 0, "failed"), 30), FinalState("x", "dead", 1), *SECOND, OVER,
    ],
    "a flow that was run again": [
        *NODES, *FIRST, *no_final(SECOND), OVER, at(RunAgain("f", 0), 45), *again("y", 50, 60), at(OVER, 65),
    ],
    "a node that was run again": [
        *NODES, *FIRST, *no_final(SECOND), OVER, at(RunAgain("y", 0), 45), *again("y", 50, 60),
    ],
    "a flow that goes on": [*NODES, *FIRST, *SECOND, replace(READ, drained=False)],
    "all is counted": [*FIRST, HistorySum({"put": 1, "done": 1, "dead": 0, "cancelled": 0, "other": 9}, "mail")],
    "one may be stored": [*FIRST, PutUnknown("u", T, "mail"), HistorySum({"put": 2, "done": 2}, "mail")],
    "one that was deleted": [*no_final(FIRST), READ, HistorySum({"put": 1, "done": 1}, "mail")],
    "one that was run again": [
        PUT, START, END, at(AGAIN, 35), *REST, HistorySum({"put": 1, "done": 2}, "mail"),
    ],
    "a flow is not counted": [
        *FIRST, Put("f", T, task="mail", logged=False, counted=False), FinalState("f", "done", 0),
        HistorySum({"put": 1, "done": 1}, "mail"),
    ],
    "one that expired": [
        *FIRST, Put("e", T, task="mail"), FinalState("e", "cancelled", 0),
        HistorySum({"expired": 1, "cancelled": 0}, "mail"),
    ],
}  # fmt: skip

FAULTS |= {
    "two at once": ("limit", [ONE, *FIRST, *job("y", 25, 35)]),
    "one under a limit of 0": ("limit", [replace(ONE, most=0), *FIRST]),
    "two of a queue": ("limit", [replace(ONE, name="queue:q"), *FIRST, *job("y", 25, 35)]),
    "two of a key": ("limit", [EACH, *put_with(FIRST, job("y", 25, 35), lane="m")]),
    "under a limit that was set again": ("limit", [at(replace(ONE, most=5), -1), ONE, *FIRST, *job("y", 25, 35)]),
    "before the first has died": ("limit", [ONE, *KILLED, died("x", 31), *again("x", 50, 60), *SECOND]),
    "three in a period": ("rate", [FAST, *job("x", 20, 21), *job("y", 22, 23), *job("z", 29.9, 31)]),
    "three claimed in a period": (
        "rate",
        [FAST, *job("x", 20, 21), *job("y", 22, 23), *begin_late(job("z", 29.9, 41), 40)],
    ),
    "two of a unique key": ("key", put_with(FIRST, job("y", 35, 40, put=25), key="k")),
    "a unique key that was put within": ("key", put_with(job("x", 20, 50), job("y", 35, 40, put=45), key="k")),
    "a key while one waits for its retry": (
        "key",
        [*put_with(KILLED, job("y", 35, 45, put=32), key="k"), died("x", 29), *again("x", 50, 60)],
    ),
    "before the one before it": ("order", put_with(job("x", 50, 60), job("y", 30, 40, put=11), order="l")),
    "before the one before it comes back from a crash": (
        "order",
        [*put_with(KILLED, job("y", 30, 40, put=11), order="l"), died("x", 29), *again("x", 50, 60)],
    ),
    "while the one before it runs": ("order", put_with(FIRST, job("y", 25, 40, put=11), order="l")),
    "before the first start of one that crashed": (
        "order",
        [*put_with(KILLED, job("y", 15, 17, put=11), order="l"), died("x", 29), *again("x", 50, 60)],
    ),
    "before its parent": ("parents", [*NODES, *FIRST, *job("y", 25, 40), OVER]),
    "its parent has not ended": (
        "parents",
        [*NODES, *KILLED, FinalState("x", "ready", 1), *SECOND, OVER, replace(READ, drained=False)],
    ),
    "its parent never was": ("parents", [NodeOf("f", "y", ("none",)), *SECOND, OVER]),
    "a flow ends twice": ("flow", [*NODES, *FIRST, *SECOND, OVER, at(OVER, 45)]),
    "a node after its flow": ("flow", [*NODES, *FIRST, *SECOND, at(OVER, 29)]),
    "a flow that does not end": ("flow", [*NODES, *FIRST, *SECOND]),
    "more are counted than were put": ("sum", [*FIRST, HistorySum({"put": 2}, "mail")]),
    "fewer are counted than were put": ("sum", [*FIRST, HistorySum({"put": 0}, "mail")]),
    "fewer ends are counted": ("sum", [*FIRST, HistorySum({"done": 0}, "mail")]),
    "more ends are counted": ("sum", [*FIRST, HistorySum({"dead": 1}, "mail")]),
    "of all tasks": ("sum", [HistorySum({"put": 3})]),
    "a level that is left": ("left", [Leftover("places", "task:mail", 2)]),
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
    assert [one.rule for one in found] == [rule], found
    (line,) = str(found[0]).splitlines()
    assert line.startswith(f"{rule}: {found[0].job}: ")


BY = 5
TOLERATED: dict[str, History] = {
    "early": [replace(PUT, due=T + (20 + BY) * MS), *GOOD[1:]],
    "overlap": [PUT, START, at(FAILED, 40 + BY), *REST],
    "end": [PUT, START, at(END, 20 - BY), FINAL],
    "step": [*GOOD, at(RECORDED, 22), at(RAN, 22 + BY)],
    "after_end": [PUT, at(CANCELLED, 20 - BY), *GOOD[1:]],
    "fence": [PUT, START, LEASE, *REST, at(REFUSED, 40 + BY)],
    "lost": [PUT, START, END, replace(READ, kept=(30 + BY) * MS)],
    "limit": [ONE, *FIRST, *job("y", 30 - BY, 35)],
    "rate": [FAST, *job("x", 20, 21), *job("y", 22, 23), *job("z", 30 - BY, 31)],
    "key": put_with(FIRST, job("y", 35, 40, put=30 - BY), key="k"),
    "order": put_with(FIRST, job("y", 30 - BY, 40, put=11), order="l"),
    "parents": [*NODES, *FIRST, *job("y", 30 - BY, 40), OVER],
    "flow": [*NODES, *FIRST, *SECOND, at(OVER, 30 - BY)],
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


def test_each_that_has_the_key_of_a_long_one_is_told() -> None:
    beside, last = job("y", 25, 26, put=24), job("z", 45, 50, put=44)
    assert [one.rule for one in check(put_with(job("x", 20, 60), beside, last, key="k"))] == ["key"] * 2


def test_attempts_of_a_job_at_the_very_same_moment_are_told() -> None:
    beside = [replace(START, owner="b"), at(Ended("x", 1, "b", 0, "failed"), 30)]
    assert rules([ONE, PUT, START, END, *beside, FINAL]) == {"writer", "overlap", "limit"}


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


def test_the_command_reads_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/tarry.db"
    with closing(open_store(url)) as store:
        store.insert([Job(b"\1" * 16, "mail", b"[]")])
    ledger = write(tmp_path / "ledger", [Put("01010101-0101-0101-0101-010101010101", 1), Put("y", 1)])
    assert history_check.main([str(ledger), "--store", url]) == 1
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()[:-1]] == ["lost", "unfinished"]
    assert history_check.main([str(ledger), "--store", "nonsense://"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert history_check.main([str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err
    assert history_check.main(["--tolerance", "soon", str(write(tmp_path / "good", GOOD))]) == 2
    assert "no duration" in capsys.readouterr().err
