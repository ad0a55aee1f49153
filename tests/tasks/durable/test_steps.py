"""Durable steps in real workers, in `def` and `async def` tasks: what is not called again, and what a wait costs."""

import asyncio
import logging
import threading
from datetime import date
from typing import Any

import pytest

from tarry import Approval, Retry, State, StepError, approve, astep, current_job, sleep, step, wait_for
from tarry.model.duration import SECOND
from tarry.store.rules import ids
from tarry.tasks.progress import kept_steps
from tarry.testing import Jobs
from tests.worker.bench import LIMIT, Bench, finished, note, until
from tests.worker.bench import wait_for as wait_until_set

AT_ONCE = Retry(3, backoff="fixed", base=0)
DAY = 86_400 * SECOND


def charge_into(ledger: list[str]) -> Any:
    def charge(order: int) -> date:
        ledger.append(f"charge {order}")
        return date(2026, 11, order)

    return charge


def record(handle: Any) -> Any:
    return handle.record()


def suspended(bench: Bench, handle: Any) -> Any:
    """The job, once it sleeps or waits."""
    until(lambda: handle.state == State.SCHEDULED)
    return handle.record()


def wake(bench: Bench, handle: Any) -> None:
    """Makes a job that sleeps due, as its time would."""
    assert handle.retry()


def declare(bench: Bench, ledger: list[str], fails: threading.Event) -> None:
    """The tasks `sync` and `loop`: two steps, and a failure between them as long as it is asked for."""
    charge = charge_into(ledger)

    async def pack(order: int) -> str:
        ledger.append(f"pack {order}")
        return f"parcel {order}"

    def pack_now(order: int) -> str:
        return asyncio.run(pack(order))

    @bench.app.task(name="sync", retry=AT_ONCE)
    def sync(order: int) -> str:
        paid = step(charge, order)
        if not fails.is_set():
            fails.set()
            raise ValueError("between two steps")
        return f"{paid:%d.%m.} {step.named('pack')(pack_now, order)}"

    @bench.app.task(name="loop", retry=AT_ONCE)
    async def loop(order: int) -> str:
        paid = await astep(charge, order)
        if not fails.is_set():
            fails.set()
            raise ValueError("between two steps")
        return f"{paid:%d.%m.} {await step(pack, order)}"


@pytest.mark.parametrize("kind", ["sync", "loop"])
def test_an_attempt_after_a_failure_passes_over_what_is_done(durable: Bench, kind: str) -> None:
    ledger: list[str] = []
    declare(durable, ledger, threading.Event())
    job = durable.app.enqueue(kind, 7)
    durable.work()
    assert job.result(LIMIT) == "07.11. parcel 7"
    assert (ledger, job.record().failures) == (["charge 7", "pack 7"], 1)


@pytest.mark.parametrize("kind", ["sync", "loop"])
def test_a_sleep_holds_no_slot_and_counts_no_attempt(durable: Bench, kind: str) -> None:
    ledger: list[str] = []
    charge = charge_into(ledger)

    @durable.app.task(name="sync", expires="1h")
    def sync() -> str:
        step(charge, 1)
        sleep("3d")
        return "woken"

    @durable.app.task(name="loop", expires="1h")
    async def loop() -> str:
        await astep(charge, 1)
        await sleep("3d")
        return "woken"

    @durable.app.task
    def other() -> str:
        return "ran"

    job = durable.app.enqueue(kind)
    durable.work(threads=1, coroutines=1)
    kept = suspended(durable, job)
    assert 0 <= kept.state_since + 3 * DAY - kept.due < 60 * SECOND
    assert (kept.failures, kept.crashes, kept.expires) == (0, 0, 0)
    # The only slot is free.
    assert durable.app.enqueue(other.name).result(LIMIT) == "ran"
    wake(durable, job)
    # Its time is not over, so it sleeps again.
    until(lambda: (again := job.record()).state == State.SCHEDULED and again.epoch > kept.epoch)
    assert job.record().due == kept.due
    assert ledger == ["charge 1"]


@pytest.mark.parametrize("kind", ["sync", "loop"])
@pytest.mark.parametrize("waits", ["sleep", "signal"])
def test_the_time_that_a_job_slept_does_not_count_for_how_long_it_is_retried(jobs: Jobs, kind: str, waits: str) -> None:
    def fail() -> None:
        raise ValueError("not yet")

    def sync() -> None:
        if waits == "sleep":
            sleep("3d")
        else:
            wait_for("paid", key="7")
        step(fail)

    async def loop() -> None:
        if waits == "sleep":
            await sleep("3d")
        else:
            await wait_for("paid", key="7")
        await astep(fail)

    # A job is as old as its id says, to the millisecond.
    rule = Retry(None, base=600, within="61m")
    fn: Any = sync if kind == "sync" else loop
    job = jobs.app.task(retry=rule)(fn).enqueue()
    jobs.drain(raising=False)
    jobs.advance("3d")
    if waits == "signal":
        jobs.drain()
        assert jobs.signal("paid", key="7") == 1
    for failures in range(1, 7):
        jobs.drain(raising=False)
        assert (job.state, job.record().failures) == ("scheduled", failures)
        jobs.advance(600)
    jobs.drain(raising=False)
    assert (job.state, job.record().failures) == ("dead", 7)


def test_a_failure_before_the_first_step_ends_the_sleep(jobs: Jobs) -> None:
    fails: list[int] = []

    def waits() -> None:
        if fails:
            raise ValueError("not yet")
        wait_for("paid", key="7")

    job = jobs.app.task(retry=Retry(None, base=1200, within="61m"))(waits).enqueue()
    jobs.drain()
    jobs.advance("3d")
    fails.append(1)
    assert jobs.signal("paid", key="7") == 1
    for failures in (1, 2, 3):
        jobs.drain(raising=False)
        assert (job.state, job.record().failures) == ("scheduled", failures)
        jobs.advance(1200)
    jobs.drain(raising=False)
    assert (job.state, job.record().failures) == ("dead", 4)


@pytest.mark.parametrize("kind", ["sync", "loop"])
def test_a_sleep_that_is_over_is_passed(fast: Bench, kind: str) -> None:
    @fast.app.task(name="sync")
    def sync() -> str:
        sleep(1.2)
        return "woken"

    @fast.app.task(name="loop")
    async def loop() -> str:
        await sleep(1.2)
        return "woken"

    job = fast.app.enqueue(kind)
    fast.work()
    assert job.result(LIMIT) == "woken"
    assert job.record().epoch == 2


@pytest.mark.parametrize("kind", ["sync", "loop"])
def test_a_signal_wakes_the_task_that_waits(durable: Bench, kind: str) -> None:
    @durable.app.task(name="sync")
    def sync(order: int) -> list[Any]:
        return [wait_for("paid", key=str(order), timeout="1d"), wait_for("paid", key=str(order))]

    @durable.app.task(name="loop")
    async def loop(order: int) -> list[Any]:
        first = await wait_for("paid", key=str(order), timeout="1d")
        return [first, await wait_for("paid", key=str(order))]

    job = durable.app.enqueue(kind, 7)
    durable.work()
    suspended(durable, job)
    assert durable.app.signal("paid", key="8", value=1) == 0
    assert durable.app.signal("paid", key="7", value={"euro": 70}) == 1
    until(lambda: record(job).state == State.SCHEDULED and record(job).due > record(job).state_since + 2 * DAY)
    assert asyncio.run(durable.app.asignal("paid", key="7", value=2, id="b")) == 1
    assert job.result(LIMIT) == [{"euro": 70}, 2]


@pytest.mark.parametrize("kind", ["sync", "loop"])
def test_a_signal_that_came_before_is_found(durable: Bench, kind: str) -> None:
    @durable.app.task(name="sync")
    def sync() -> Any:
        return wait_for("paid", key="7", type=date)

    @durable.app.task(name="loop")
    async def loop() -> Any:
        return await wait_for("paid", key="7", type=date)

    assert durable.app.signal("paid", key="7", value="2026-11-24", id="a") == 0
    assert durable.app.signal("paid", key="7", value="2026-11-25", id="b") == 0
    job = durable.app.enqueue(kind)
    durable.work()
    assert job.result(LIMIT) == "2026-11-24"


def test_a_wait_whose_time_is_over_is_none(durable: Bench) -> None:
    @durable.app.task
    async def waits() -> list[Any]:
        return [await wait_for("paid", key="7", timeout=0.01), await approve("refund", key="7", timeout=0)]

    job = durable.app.enqueue(waits.name)
    durable.work()
    assert job.result(LIMIT) == [None, None]


def test_an_approval_is_a_decision_of_a_person(fast: Bench) -> None:
    @fast.app.task
    async def refund() -> str:
        said = await approve("refund of 70", key="7")
        return f"{said.ok} {said.by} {said.note}"

    job = fast.app.enqueue(refund.name)
    fast.work()
    suspended(fast, job)
    (asked,) = fast.store().flows.awaiting("approve:", 10)
    assert (asked.name, asked.key, asked.job) == ("approve:refund of 70", "7", ids.parse(job.id))
    assert fast.app.signal(asked.name, key=asked.key, value=Approval(True, "ann", "once")) == 1
    assert job.result(LIMIT) == "True ann once"


def test_steps_side_by_side_are_in_the_order_of_their_calls(fast: Bench) -> None:
    ledger: list[str] = []
    fails = threading.Event()

    async def late(name: str) -> str:
        await asyncio.sleep(0.01)
        ledger.append(name)
        return name

    async def soon(name: str) -> str:
        ledger.append(name)
        return name

    @fast.app.task(retry=AT_ONCE)
    async def both() -> list[str]:
        found = await asyncio.gather(step(late, "a"), step(soon, "b"), astep(str.upper, "c"))
        if not fails.is_set():
            fails.set()
            raise ValueError
        return [*found, await step(soon, "d")]

    job = fast.app.enqueue(both.name)
    fast.work()
    assert job.result(LIMIT) == ["a", "b", "C", "d"]
    assert ledger == ["b", "a", "d"]


def test_a_job_that_waits_holds_no_slot_of_its_limit(durable: Bench) -> None:
    @durable.app.task(limit=1)
    async def asks(key: str) -> Any:
        return await wait_for("paid", key=key)

    jobs = [durable.app.enqueue(asks.name, key) for key in "abc"]
    durable.app.declare_limits(durable.app.client.store)
    durable.work()
    store = durable.app.client.store

    def moved() -> bool:
        # As a keeper does: the place goes to the shard where one is ready.
        store.move_shares("keeper", store.time(), SECOND)
        return True

    # All three wait, although one may run at a time.
    until(lambda: moved() and len(store.flows.awaiting("paid", 10)) == len(jobs))
    for key in "cab":
        durable.app.signal("paid", key=key, value=key)
    until(lambda: moved() and all(durable.app.get(job.id).state.finished for job in jobs))
    assert [job.result(LIMIT) for job in jobs] == ["a", "b", "c"]


def test_a_wait_that_a_gather_returns_as_an_error_is_told(fast: Bench) -> None:
    @fast.app.task(retry=AT_ONCE)
    async def swallows() -> int:
        return len(await asyncio.gather(sleep("1d"), return_exceptions=True))

    job = fast.app.enqueue(swallows.name)
    fast.work()
    assert finished(job) == State.DEAD
    assert "caught what `sleep` or `wait_for` raises, perhaps by `return_exceptions=True`" in note(job)["message"]


async def until_kept(bench: Bench, name: str) -> None:
    """Waits until a step of this job is stored; then for so long that what goes on by that has gone on."""
    (id,) = [ids.parse(current_job().id)]
    for _ in range(10_000):
        (job,) = await asyncio.to_thread(bench.app.client.store.get, [id])
        if job is not None and name.encode() in kept_steps(job.progress):
            break
    for _ in range(100):
        await asyncio.sleep(0)


def test_a_step_that_is_on_when_another_one_sleeps_is_done_once(fast: Bench) -> None:
    """The sleep waits for it: else it would be done, and not be kept."""
    ledger: list[str] = []

    async def charge() -> str:
        await until_kept(fast, "sleep")
        ledger.append("charged")
        return "receipt"

    @fast.app.task
    async def both() -> str:
        receipt, _ = await asyncio.gather(step(charge), sleep(1.1))
        return receipt

    job = fast.app.enqueue(both.name)
    fast.work()
    assert job.result(LIMIT) == "receipt"
    assert ledger == ["charged"]


def test_a_step_that_is_awaited_behind_a_wait_that_goes_on_does_not_begin(fast: Bench) -> None:
    """The attempt has ended by then, and nothing would be kept."""
    ledger: list[str] = []

    async def charge() -> None:
        ledger.append("charged")

    @fast.app.task
    async def charged_at_last() -> None:
        ledger.append("attempt")
        charged = step(charge)
        try:
            await sleep(1.1)
        finally:
            await charged

    job = fast.app.enqueue(charged_at_last.name)
    fast.work()
    job.result(LIMIT)
    assert ledger == ["attempt", "attempt", "charged"]


def test_a_step_beside_one_that_sleeps_still_is_called_until_it_is_kept(fast: Bench) -> None:
    ledger: list[str] = []

    async def charge() -> str:
        await until_kept(fast, "sleep")
        ledger.append("charged")
        if len(ledger) == 1:
            raise ValueError
        return "receipt"

    @fast.app.task(retry=AT_ONCE)
    async def both() -> str:
        _, receipt = await asyncio.gather(sleep(1.5), step(charge))
        return receipt

    job = fast.app.enqueue(both.name)
    fast.work()
    assert job.result(LIMIT) == "receipt"
    assert ledger == ["charged", "charged"]


def test_a_step_in_a_step_is_a_plain_call(fast: Bench) -> None:
    async def inner(n: int) -> int:
        return n + 1

    def inner_sync(n: int) -> int:
        return n + 1

    async def outer(n: int) -> int:
        return await step(inner, n) + await astep(inner_sync, n)

    def outer_sync(n: int) -> int:
        return step(inner_sync, n)

    @fast.app.task
    async def loop() -> list[int]:
        return [await step(outer, 1), await astep(outer_sync, 1)]

    job = fast.app.enqueue(loop.name)
    fast.work()
    assert job.result(LIMIT) == [4, 2]
    assert len(names(job)) == 2


def test_code_that_changed_is_told_and_the_job_is_dead(fast: Bench) -> None:
    def charge() -> int:
        return 1

    def refund() -> int:
        return 2

    functions = [charge, refund]

    @fast.app.task(retry=AT_ONCE)
    def order() -> int:
        value = step(functions[current_job().attempt - 1])
        raise ValueError(value)

    job = fast.app.enqueue(order.name)
    fast.work()
    assert finished(job) == State.DEAD
    told = note(job)
    assert told["type"] == "tarry.errors.StepsChanged"
    assert f"step 1 of {order.name} was `" in told["message"]
    assert "charge` when it ran, and is `" in told["message"]
    assert job.record().failures == 2


def test_steps_that_are_left_out_are_logged(fast: Bench, caplog: pytest.LogCaptureFixture) -> None:
    @fast.app.task(retry=AT_ONCE)
    def order() -> None:
        if current_job().attempt == 1:
            step.named("charge")(int, 7)
            raise ValueError

    job = fast.app.enqueue(order.name)
    with caplog.at_level(logging.WARNING, "tarry.worker"):
        fast.work()
        assert finished(job) == State.DONE
    assert f"{order.name} {job.id} ended without steps that it had done before: 1 step, `charge` first" in caplog.text


def test_a_task_that_catches_its_sleep_is_told_where(fast: Bench) -> None:
    @fast.app.task
    def order() -> str:
        try:
            sleep("1d")
        except BaseException:
            return "went on"
        return "slept"

    job = fast.app.enqueue(order.name)
    fast.work()
    assert finished(job) == State.DEAD
    assert note(job)["type"] == "StepError"
    assert f"{__file__}:" in note(job)["message"]


def test_what_is_no_json_is_told_and_not_done_again(fast: Bench) -> None:
    calls: list[int] = []

    def opened() -> Any:
        calls.append(1)
        return object()

    @fast.app.task(retry=AT_ONCE)
    def order() -> None:
        step(opened)

    job = fast.app.enqueue(order.name)
    fast.work()
    assert finished(job) == State.DEAD
    assert (note(job)["type"], len(calls)) == ("tarry.errors.StepError", 1)


def test_a_value_that_is_too_large_is_told_and_not_done_again(fast: Bench) -> None:
    calls: list[int] = []

    def large() -> str:
        calls.append(1)
        return "x" * 70_000

    @fast.app.task(retry=AT_ONCE)
    async def order() -> None:
        await astep(large)

    job = fast.app.enqueue(order.name)
    fast.work()
    assert finished(job) == State.DEAD
    assert (note(job)["type"], len(calls)) == ("tarry.errors.StepLimit", 1)


def test_a_cancelled_job_runs_no_further_step(fast: Bench) -> None:
    ledger: list[str] = []
    begun, gate = threading.Event(), fast.gate()

    def first() -> None:
        begun.set()
        gate.wait(LIMIT)

    @fast.app.task
    def order() -> None:
        step(first)
        step(ledger.append, "second")

    job = fast.app.enqueue(order.name)
    worker = fast.work()
    wait_until_set(begun)
    assert job.cancel()
    gate.set()
    until(lambda: not worker.pump.held_count)
    assert (job.state, ledger) == (State.CANCELLED, [])


def test_where_no_worker_runs_the_code_it_is_told() -> None:
    with pytest.raises(RuntimeError, match=r"step\(int\) is for code that a worker runs"):
        step(int, 7)
    with pytest.raises(RuntimeError, match=r"sleep\(\) is for code that a worker runs"):
        sleep(1)
    with pytest.raises(RuntimeError, match=r"wait_for\('paid'\) is for code that a worker runs"):
        wait_for("paid", key="7")


@pytest.mark.parametrize(("name", "key"), [("", "7"), ("paid", ""), ("x" * 501, "7"), ("paid", "é" * 251)])
def test_an_address_has_bounds(fast: Bench, name: str, key: str) -> None:
    with pytest.raises(ValueError, match=r"name|key"):
        fast.app.signal(name, key=key)
    with pytest.raises(ValueError, match=r"name|key"):
        wait_for(name, key=key)


def test_the_value_of_a_signal_has_bounds(fast: Bench) -> None:
    with pytest.raises(ValueError, match=r"70,002 bytes; 65,536 can be kept"):
        fast.app.signal("paid", key="7", value="x" * 70_000)
    with pytest.raises(ValueError, match=r"cannot be kept as JSON"):
        fast.app.signal("paid", key="7", value=float("nan"))


def test_a_sleep_cannot_be_in_a_step_nor_a_step_in_a_batch(fast: Bench) -> None:
    def naps() -> None:
        sleep("1d")

    @fast.app.task(retry=None)
    def order() -> None:
        step(naps)

    @fast.app.task(batch=10, wait=0, retry=None)
    def many(numbers: list[int]) -> None:
        step(print, numbers)

    jobs = [fast.app.enqueue(order.name), fast.app.enqueue(many.name, 1)]
    fast.work()
    assert [finished(job) for job in jobs] == [State.DEAD, State.DEAD]
    assert "a step cannot leave its slot" in note(jobs[0])["message"]
    assert "such a call has no steps" in note(jobs[1])["message"]


def test_suspending_in_a_group_of_asyncio_tasks(fast: Bench) -> None:
    @fast.app.task
    async def order() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(_sleep_long())
            group.create_task(asyncio.sleep(LIMIT))
        return "done"

    async def _sleep_long() -> None:
        await sleep("1d")

    job = fast.app.enqueue(order.name)
    fast.work()
    assert suspended(fast, job).failures == 0


def names(job: Any) -> list[str]:
    from msgspec import json  # noqa: PLC0415

    return [name for name, *_ in json.decode(kept_steps(job.record().progress))]


def test_errors_are_one_family() -> None:
    from tarry import StepLimit, StepsChanged  # noqa: PLC0415

    assert issubclass(StepLimit, StepError)
    assert issubclass(StepsChanged, StepError)
