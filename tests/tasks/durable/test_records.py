"""The steps of a job as people see them."""

import pytest
from msgspec import Raw, json
from msgspec.structs import replace

from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.model.moving import NEVER
from tarry.tasks.durable.step_records import JobStepRecord, step_records
from tarry.tasks.step_log import KeptStep

DUE = 1_800_000_000 * SECOND


def job(steps: bytes, state: State = State.SCHEDULED) -> Job:
    progress = json.encode((None, "", 0, 0, None, Raw(steps)))
    return Job(bytes(16), "order", b"[]", due=DUE, state=state, progress=progress)


def test_each_kind_of_step() -> None:
    kept = [
        KeptStep("charge", Raw(b'{"cents":7}')),
        None,
        KeptStep("sleep", Raw(b"%d" % (DUE - SECOND))),
        KeptStep("wait_for paid", Raw(b'["7",%d,2,"by card"]' % NEVER)),
        KeptStep("wait_for review", Raw(b'["7",%d]' % DUE), waits=True),
    ]
    assert step_records(job(json.encode(kept))) == [
        JobStepRecord(1, "charge", "step", True, {"cents": 7}),
        JobStepRecord(3, "sleep", "sleep", True, until=DUE / SECOND - 1),
        JobStepRecord(4, "paid", "wait", True, "by card", "7"),
        JobStepRecord(5, "review", "wait", False, None, "7", DUE / SECOND),
    ]


def test_a_sleep_is_over_when_its_time_has_come() -> None:
    asleep = job(json.encode([KeptStep("sleep", Raw(b"%d" % DUE))]))
    assert [step_records(one)[0].done for one in (asleep, replace(asleep, state=State.RUNNING))] == [False, True]


@pytest.mark.parametrize("name", ["sleep", "wait_for paid"])
def test_a_step_of_ones_own_may_have_any_name(name: str) -> None:
    assert step_records(job(json.encode([KeptStep(name, Raw(b'"x"'))]))) == [JobStepRecord(1, name, "step", True, "x")]


@pytest.mark.parametrize("steps", [b"null", b"[]", b"7", b"[7]", b'[["a"]]'])
def test_what_cannot_be_read_is_no_step(steps: bytes) -> None:
    assert step_records(job(steps)) == []
    assert step_records(replace(job(steps), progress=b"")) == []
