"""The log of a job's steps: positions, names, what is kept of them and its bounds."""

import pytest
from msgspec import Raw, json

from tarry import StepLimit, StepsChanged
from tarry.model.flow.signal import MOST_VALUE
from tarry.model.slept import Slept, kept_slept
from tarry.tasks.progress import Progress, decode_output, decode_progress, encode_report, kept_steps
from tarry.tasks.step_log import MOST_BYTES, MOST_STEPS, KeptStep, StepLog, Suspension, find_suspension
from tests.worker.manual_pump import OWNER, TASKS, MakePump, ManualPump


@pytest.fixture
def manual(make: MakePump) -> ManualPump:
    return make()


def step(name: str, value: bytes = b"1", waits: bool = False) -> KeptStep:
    return KeptStep(name, Raw(value), waits)


def progress(log: StepLog) -> bytes:
    """As a store keeps it."""
    return json.encode((None, "", 0, 0, None, Raw(log.encode()), log.slept))


def again(log: StepLog, woken: int = 0) -> StepLog:
    """The log of the next attempt."""
    return StepLog("order", progress(log), woken)


def test_the_next_attempt_finds_what_was_kept() -> None:
    log = StepLog("order", b"")
    for position, name in enumerate(["charge", "pack"]):
        assert log.take(name) == position
        assert log.kept(position) is None
        log.keep(position, step(name, b'{"n": %d}' % position))
    later = again(log)
    assert [later.take("charge"), later.take("pack"), later.take("ship")] == [0, 1, 2]
    kept = [later.kept(position) for position in range(3)]
    assert [one and (one.name, json.decode(one.value)) for one in kept] == [
        ("charge", {"n": 0}),
        ("pack", {"n": 1}),
        None,
    ]


def test_steps_side_by_side_may_end_in_any_order() -> None:
    log = StepLog("order", b"")
    first, second = log.take("a"), log.take("b")
    log.keep(second, step("b", b"2"))
    later = again(log)
    assert (later.take("a"), later.take("b")) == (first, second)
    assert later.kept(first) is None
    later.keep(first, step("a"))
    assert json.decode(later.encode()) == [["a", 1, False], ["b", 2, False]]


def test_another_name_at_a_position_is_told_with_both_names() -> None:
    log = StepLog("order", b"")
    log.keep(log.take("charge"), step("charge"))
    with pytest.raises(StepsChanged, match=r"^step 1 of order was `charge` when it ran, and is `refund` now: put new"):
        again(log).take("refund")


def test_what_is_left_out_is_told() -> None:
    log = StepLog("order", b"")
    for name in ("charge", "pack", "ship"):
        log.keep(log.take(name), step(name))
    later = again(log)
    later.take("charge")
    assert later.left_over() == "2 steps, `pack` first"
    later.take("pack")
    later.take("ship")
    assert later.left_over() == ""


def test_no_more_steps_than_the_bound() -> None:
    log = StepLog("order", b"")
    for _ in range(MOST_STEPS):
        log.take("step")
    with pytest.raises(StepLimit, match=r"more than 1,000 steps: make it a flow"):
        log.take("step")


def test_a_value_has_a_bound() -> None:
    log = StepLog("order", b"")
    log.keep(log.take("a"), step("a", b"1" * MOST_VALUE))
    with pytest.raises(StepLimit, match=r"step `b` has 65,537 bytes; 65,536 can be kept"):
        log.keep(log.take("b"), step("b", b"1" * (MOST_VALUE + 1)))
    assert log.kept(1) is None


def test_all_values_together_have_a_bound_and_replacing_one_counts_once() -> None:
    log = StepLog("order", b"")
    for number in range(3):
        log.keep(log.take(f"{number}"), step(f"{number}", b"1" * MOST_VALUE))
    log.keep(2, step("2", b"1" * MOST_VALUE))
    with pytest.raises(StepLimit, match=r"more than 262,144 bytes in all"):
        log.keep(log.take("3"), step("3", b"1" * MOST_VALUE))
    log.keep(3, step("3", b"1" * (MOST_VALUE - 100)))
    assert len(log.encode()) <= MOST_BYTES


def test_after_a_suspension_no_other_step_begins() -> None:
    log = StepLog("order", b"")
    suspension = log.suspend(7)
    with pytest.raises(Suspension) as caught:
        log.take("charge")
    assert caught.value is suspension
    assert suspension.outcome.until == 7


def test_a_group_of_suspensions_is_one_but_not_with_another_error() -> None:
    one = StepLog("order", b"").suspend(7)
    assert find_suspension(one) is one
    assert find_suspension(BaseExceptionGroup("", [one])) is one
    assert find_suspension(BaseExceptionGroup("", [BaseExceptionGroup("", [one])])) is one
    assert find_suspension(BaseExceptionGroup("", [one, ValueError()])) is None
    assert find_suspension(ValueError()) is None


def test_progress_and_output_leave_the_steps_alone(manual: ManualPump) -> None:
    manual.insert(1)
    manual.turns()
    (running,) = manual.sync.on
    assert kept_steps(encode_report(running)) == b""
    running.step_log = StepLog(TASKS["sync"].name, b"")
    running.step_log.keep(running.step_log.take("charge"), step("charge"))
    running.progress = Progress(0.5, "half")
    report = encode_report(running)
    assert json.decode(kept_steps(report)) == [["charge", 1, False]]
    assert (decode_progress(report), decode_output(report)) == (Progress(0.5, "half"), None)


def test_an_attempt_without_a_step_keeps_those_of_the_one_before(manual: ManualPump) -> None:
    manual.insert(1)
    manual.turns()
    (running,) = manual.sync.on
    log = StepLog("sync", b"")
    log.keep(log.take("charge"), step("charge"))
    manual.store.save_progress(
        OWNER, [(running.job.id, running.job.epoch, json.encode((None, "", 0, 0, None, Raw(log.encode()))))]
    )
    (job,) = manual.store.get([running.job.id])
    assert job is not None
    running.job = job
    running.progress = Progress(0.5)
    assert json.decode(kept_steps(encode_report(running))) == [["charge", 1, False]]


def test_what_was_slept_is_summed_up_over_attempts() -> None:
    log = StepLog("order", b"", 5)
    assert log.slept == Slept()
    log.begin_sleep(100, 400)
    log.keep(0, step("sleep"))
    # Called before its time; it sleeps again, and is called late.
    log = again(log, woken=150)
    assert log.slept == Slept(50)
    log.begin_sleep(160, 400)
    log = again(log, woken=1000)
    assert log.slept == Slept(50 + 240)
    # An attempt that comes to no step leaves it as it is.
    assert kept_slept(progress(log)) == Slept(290)


@pytest.mark.parametrize("kept", [b"", b'[0.5,"half"]', b'[null,"",0,0,null,[]]', b"no JSON"])
def test_a_job_that_has_not_slept(kept: bytes) -> None:
    assert kept_slept(kept).total(7) == 0
