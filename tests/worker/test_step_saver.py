"""Durable steps of running jobs on their way to the store: many in one call, and what happens while it is away."""

from collections.abc import Callable, Sequence

import pytest
from msgspec import Raw, json
from msgspec.structs import replace

from tarry.errors import PartlyUnavailable, StoreUnavailable
from tarry.tasks.progress import ProgressRow, kept_steps
from tarry.tasks.running import Running
from tarry.tasks.step_log import KeptStep, StepLog
from tarry.worker import step_saver
from tests.worker.manual_pump import MakePump, ManualPump

Answers = dict[bytes, list[bool]]


@pytest.fixture
def manual(make: MakePump) -> ManualPump:
    return make(threads=3)


def begin(manual: ManualPump) -> list[Running]:
    """Three jobs that run, each with a step that is not stored yet."""
    manual.insert(3)
    manual.turns()
    manual.store.calls.clear()
    for running in manual.sync.on:
        running.step_log = StepLog("sync", running.job.progress)
        keep(running, "charge")
    return list(manual.sync.on)


def keep(running: Running, name: str) -> None:
    assert running.step_log is not None
    running.step_log.keep(running.step_log.take(name), KeptStep(name, Raw(b"1")))


def noting(answers: Answers, running: Running) -> Callable[[bool], None]:
    return lambda is_ours: answers.setdefault(running.job.id, []).append(is_ours)


def stored(manual: ManualPump, running: Running) -> list[str]:
    kept = kept_steps(manual.record(running.job).progress)
    return [name for name, *_ in json.decode(kept)] if kept else []


def test_steps_of_many_jobs_are_one_call(manual: ManualPump) -> None:
    answers: Answers = {}
    ours = begin(manual)
    for running in ours:
        manual.pump.steps.add(running, noting(answers, running))
    assert answers == {}
    manual.turns()
    assert manual.store.calls["save_progress"] == 1
    assert answers == {running.job.id: [True] for running in ours}
    assert [stored(manual, running) for running in ours] == [["charge"]] * 3


def test_steps_side_by_side_of_one_job_are_one_row(manual: ManualPump) -> None:
    answers: Answers = {}
    one, *_ = begin(manual)
    manual.pump.steps.add(one, noting(answers, one))
    keep(one, "pack")
    manual.pump.steps.add(one, noting(answers, one))
    manual.turns()
    assert (manual.store.calls["save_progress"], answers) == (1, {one.job.id: [True, True]})
    assert stored(manual, one) == ["charge", "pack"]


def test_a_step_of_a_job_that_is_not_ours_is_told_so(manual: ManualPump) -> None:
    answers: Answers = {}
    one, other, *_ = begin(manual)
    one.job = replace(one.job, epoch=one.job.epoch + 1)
    for running in (one, other):
        manual.pump.steps.add(running, noting(answers, running))
    manual.pump.steps.save()
    assert answers == {one.job.id: [False], other.job.id: [True]}
    assert stored(manual, one) == []


def test_steps_wait_while_the_store_is_away(manual: ManualPump) -> None:
    answers: Answers = {}
    one, *_ = begin(manual)
    manual.store.error = StoreUnavailable("away")
    manual.pump.steps.add(one, noting(answers, one))
    seconds = manual.turns()
    assert answers == {}
    assert manual.pump.trouble == "away"
    manual.store.error = None
    manual.pass_time(seconds)
    manual.turns()
    assert answers == {one.job.id: [True]}
    assert stored(manual, one) == ["charge"]


def test_a_step_wakes_the_pump_once_until_it_saves(manual: ManualPump, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[int] = []
    monkeypatch.setattr(manual.pump.steps, "_wake", lambda: woken.append(1))
    ours = begin(manual)
    for _ in range(2):
        for running in ours:
            manual.pump.steps.add(running, lambda is_ours: None)
        manual.pump.steps.save()
    assert len(woken) == 2


def test_steps_of_a_shard_that_is_away_wait_and_the_others_go_on(
    manual: ManualPump, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: Answers = {}
    one, other, *_ = begin(manual)
    away = StoreUnavailable("one shard is away")

    def half(owner: str, marks: Sequence[ProgressRow]) -> list[bool]:
        raise PartlyUnavailable("one shard is away", [False, True], {0: away})

    with monkeypatch.context() as patch:
        patch.setattr(manual.store, "save_progress", half)
        for running in (one, other):
            manual.pump.steps.add(running, noting(answers, running))
        manual.turns()
    assert answers == {other.job.id: [True]}
    assert manual.pump.steps.pending
    manual.turns()
    assert answers == {one.job.id: [True], other.job.id: [True]}
    assert stored(manual, one) == ["charge"]


def test_many_large_steps_are_several_calls(manual: ManualPump, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Answers = {}
    monkeypatch.setattr(step_saver, "MAX_SAVE_BYTES", 50)
    ours = begin(manual)
    for running in ours:
        manual.pump.steps.add(running, noting(answers, running))
    manual.turns()
    assert manual.store.calls["save_progress"] == 2
    assert answers == {running.job.id: [True] for running in ours}


def test_steps_that_come_while_others_are_stored_wait_for_the_next_call(manual: ManualPump) -> None:
    one, *_ = begin(manual)

    def go_on(is_ours: bool) -> None:
        keep(one, "charge")
        manual.pump.steps.add(one, go_on)

    manual.pump.steps.add(one, go_on)
    for calls in (1, 2):
        manual.pump.step()
        assert manual.store.calls["save_progress"] == calls


def test_a_step_after_one_that_woke_the_pump_for_nothing_wakes_it_again(
    manual: ManualPump, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    steps = manual.pump.steps
    one, other, *_ = begin(manual)
    take = steps._take

    def take_late(taken: object, most: int) -> object:
        # Added after the pump resets that it was woken, and taken all the same.
        steps.add(other, lambda is_ours: None)
        return take(taken, most + 1)  # type: ignore[arg-type]

    monkeypatch.setattr(steps, "_wake", lambda: woken.append(1))
    steps.add(one, lambda is_ours: None)
    with monkeypatch.context() as patch:
        patch.setattr(steps, "_take", take_late)
        manual.pump.step()
    manual.pump.step()
    steps.add(one, lambda is_ours: None)
    assert len(woken) == 3
