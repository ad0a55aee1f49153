"""What flows and steps ask of the store. Their speed stands on it, so it is counted."""

import pytest
from msgspec import Raw

from tarry import App
from tarry.model.outcome import Returned
from tarry.tasks.running import Running
from tarry.tasks.step_log import KeptStep, StepLog
from tarry.worker.capacity import GATHER
from tests.worker.manual_pump import MakePump, ManualPump
from tests.worker.test_settle_delay import Steady

LINKS = 20


def app_on(manual: ManualPump) -> App:
    app = App(manual.store, closures=True)

    @app.task(name="sync")
    def sync(before: int) -> int:
        return before

    return app


def test_a_link_of_a_chain_is_one_call(make: MakePump, monkeypatch: pytest.MonkeyPatch) -> None:
    """It settles the link before, releases this one and claims it; its argument is at hand."""
    manual = make()
    sync = app_on(manual).tasks["sync"]
    app_on(manual).chain(sync.call(1), *(sync.call() for _ in range(LINKS - 1)))
    manual.turns()
    manual.store.calls.clear()
    monkeypatch.setattr(manual.store, "get", lambda ids: pytest.fail("it asks for a result that it has settled"))
    for _ in range(LINKS - 1):
        (running,) = manual.sync.on
        running.fetch_arguments()
        manual.sync.end(running, Returned(b"1"))
        manual.pump.step()
    assert manual.store.calls == {"exchange": LINKS - 1}


def test_a_link_of_a_chain_does_not_wait_for_others(make: MakePump) -> None:
    """Jobs that come while others run are gathered. A link comes because the one before has ended."""
    manual = make(threads=4)
    manual.pump._delay = Steady()
    sync = app_on(manual).tasks["sync"]
    app_on(manual).chain(sync.call(1), *(sync.call() for _ in range(LINKS - 1)))
    manual.turns()
    for _ in range(LINKS - 1):
        manual.sync.end_all()
        manual.pump.step()
        assert manual.pump.settle_delay() == 0.0
    manual.insert()
    manual.sync.end_all()
    manual.pump.step()
    assert manual.pump.settle_delay() == GATHER


def take_step(manual: ManualPump, running: Running) -> None:
    log = running.step_log = running.step_log or StepLog("sync", b"")
    log.keep(log.take("charge"), KeptStep("charge", Raw(b"1")))
    manual.pump.steps.add(running, lambda is_ours: None)


def test_a_step_is_one_call_of_all_jobs_that_have_one(make: MakePump) -> None:
    manual = make(threads=5)
    manual.insert(3)
    manual.turns()
    manual.store.calls.clear()
    for _ in range(10):
        for running in manual.sync.on:
            take_step(manual, running)
        manual.pump.step()
    assert manual.store.calls == {"save_progress": 10}


def test_a_worker_whose_tasks_have_step_after_step_looks_for_jobs_now_and_then(make: MakePump) -> None:
    manual = make(threads=2)
    manual.insert()
    manual.turns()
    (running,) = manual.sync.on
    manual.insert()
    take_step(manual, running)
    manual.pump.step()
    assert len(manual.sync.on) == 1
    manual.pass_time(GATHER)
    take_step(manual, running)
    manual.pump.step()
    assert len(manual.sync.on) == 2


@pytest.mark.parametrize("news", ["sleep", "look"])
def test_a_worker_that_was_woken_looks_for_jobs_beside_a_step(make: MakePump, news: str) -> None:
    manual = make(threads=2)
    manual.insert()
    manual.turns()
    (running,) = manual.sync.on
    manual.insert()
    take_step(manual, running)
    if news == "sleep":
        manual.pump.wakeup.wake()
        manual.pump.sleep(1.0, ())
    else:
        manual.pump.look_thoroughly()
    manual.pump.step()
    assert len(manual.sync.on) == 2
