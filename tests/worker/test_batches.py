"""One call for many jobs, each with its own outcome."""

import asyncio
import threading
import time as clock
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tarry import (
    App,
    ArgumentError,
    Cancel,
    Fail,
    Job,
    JobFailed,
    Progress,
    Retry,
    Snooze,
    TimeLimit,
    current_job,
    current_jobs,
)
from tarry.client.tasks.task import Task
from tarry.keeper.chores import Keeper
from tarry.model import lifecycle
from tarry.model.outcome import Released
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import owner
from tarry.store.rules.base import BANDS, Want
from tarry.worker import capacity
from tests.worker.bench import LIMIT, Bench, finished, note, until, wait_for

kinds = pytest.mark.parametrize("kind", ["sync", "loop"])
Work = Callable[[list[Any]], Any]


def batched(app: App, kind: str, work: Work, **settings: Any) -> Task[Any, Any]:
    """A batch task of that kind, which does the work."""
    if kind == "sync":

        @app.task(name="many", **settings)
        def many(items: list[Any]) -> Any:
            return work(items)

        sync: Task[Any, Any] = many
        return sync

    @app.task(name="many", **settings)
    async def amany(items: list[Any]) -> Any:
        await asyncio.sleep(0)
        return work(items)

    loop: Task[Any, Any] = amany
    return loop


def put(task: Task[Any, Any], items: Sequence[Any]) -> list[Job[Any]]:
    return task.enqueue_many([(item,) for item in items])


@kinds
def test_one_call_gets_many_and_each_gets_its_own_result(any_bench: Bench, kind: str) -> None:
    calls: list[list[int]] = []

    def double(items: list[int]) -> list[int]:
        calls.append(items)
        return [2 * item for item in items]

    jobs = put(batched(any_bench.app, kind, double, batch=10, wait=0.05), range(35))
    any_bench.work()
    assert [job.result(LIMIT) for job in jobs] == [2 * number for number in range(35)]
    assert [len(call) for call in calls] == [10, 10, 10, 5]
    assert [item for call in calls for item in call] == list(range(35))


@kinds
def test_none_is_done_for_all(bench: Bench, kind: str) -> None:
    jobs = put(batched(bench.app, kind, lambda items: None, batch=10, wait=0), range(5))
    bench.work()
    assert [job.result(LIMIT) for job in jobs] == [None] * 5


@kinds
def test_each_may_end_differently(bench: Bench, kind: str) -> None:
    calls: list[list[str]] = []
    ends: dict[str, Any] = {
        "fine": {"a": 1},
        "nothing": None,
        "error": ValueError("bad one"),
        "snooze": Snooze(3600),
        "cancel": Cancel("not needed"),
        "fail": Fail("never"),
        "after": Retry.after(3600),
        "unkeepable": object(),
    }

    def work(items: list[str]) -> list[Any]:
        calls.append(items)
        return [ends[item] for item in items]

    task = batched(bench.app, kind, work, batch=100, wait=0.05, retry=Retry(1, base=3600))
    jobs = dict(zip(ends, put(task, list(ends)), strict=True))
    bench.work()
    until(lambda: not {"ready", "running"} & {job.state for job in jobs.values()})
    states = {name: job.state for name, job in jobs.items()}
    assert states == {
        "fine": "done", "nothing": "done", "error": "scheduled", "snooze": "scheduled", "cancel": "cancelled",
        "fail": "dead", "after": "scheduled", "unkeepable": "dead",
    }  # fmt: skip
    assert {name: job.record().failures for name, job in jobs.items() if job.record().failures} == {
        "error": 1, "fail": 1, "after": 1, "unkeepable": 1,
    }  # fmt: skip
    assert jobs["fine"].result() == {"a": 1}
    assert (note(jobs["error"])["type"], note(jobs["error"])["message"]) == ("ValueError", "bad one")
    assert note(jobs["cancel"])["message"] == "not needed"
    assert note(jobs["unkeepable"])["type"] == "ResultError"
    assert len(calls) == 1


@kinds
def test_what_is_raised_is_everybodys_failure_and_each_is_tried_again_by_the_rules(bench: Bench, kind: str) -> None:
    calls: list[list[int]] = []

    def work(items: list[int]) -> list[int]:
        calls.append(items)
        if len(calls) <= 2:
            raise ConnectionError(f"no {len(calls)}")
        return items

    task = batched(bench.app, kind, work, batch=10, wait=0.05, retry=Retry(2, base=0.02))
    jobs = put(task, range(4))
    bench.work()
    assert [job.result(LIMIT) for job in jobs] == [0, 1, 2, 3]
    assert sum(job.record().failures for job in jobs) == len(calls[0]) + len(calls[1])
    assert calls[0] == [0, 1, 2, 3]


@kinds
@pytest.mark.parametrize("verdict", [Snooze(3600), Cancel("all"), Fail("all")])
@pytest.mark.parametrize("way", ["raise", "return"])
def test_a_verdict_may_be_for_all(bench: Bench, kind: str, verdict: Exception, way: str) -> None:
    def work(items: list[int]) -> Any:
        if way == "raise":
            raise verdict
        return verdict

    jobs = put(batched(bench.app, kind, work, batch=10, wait=0), range(3))
    bench.work()
    expected = {"Snooze": "scheduled", "Cancel": "cancelled", "Fail": "dead"}[type(verdict).__name__]
    until(lambda: {job.state for job in jobs} == {expected})


@kinds
@pytest.mark.parametrize(
    ("answer", "told"),
    [([1, 2], "2 results"), ([], "0 results"), ({"a": 1}, "dict"), (3, "int"), (ValueError("x"), "ValueError")],
)
def test_an_answer_that_is_not_one_for_each_is_dead_for_all(bench: Bench, kind: str, answer: Any, told: str) -> None:
    jobs = put(batched(bench.app, kind, lambda items: answer, batch=10, wait=0.05, retry=5), range(3))
    bench.work()
    assert {finished(job) for job in jobs} == {"dead"}
    why = f"many returned {told} for 3 jobs; None or a list with one for each is needed"
    assert [(note(job)["type"], note(job)["message"]) for job in jobs] == [("ResultError", why)] * 3


def test_a_result_that_is_too_large_is_dead_alone(bench: Bench) -> None:
    jobs = put(batched(bench.app, "sync", lambda items: ["x" * item for item in items], batch=9, wait=0.02), [5, 500])
    bench.work(max_body=100)
    assert [finished(job) for job in jobs] == ["done", "dead"]


@dataclass
class Doc:
    id: int
    words: list[str]


def test_elements_and_results_are_of_their_types(bench: Bench) -> None:
    seen: list[Doc] = []

    @bench.app.task(batch=10, wait=0)
    def index(docs: list[Doc]) -> list[Doc | Exception] | None:
        seen.extend(docs)
        return [Doc(-doc.id, doc.words) if doc.id else ValueError("none") for doc in docs]

    bench.work()
    jobs = [index.enqueue(Doc(1, ["a"])), index.enqueue(docs=Doc(2, [])), *index.enqueue_many([(Doc(3, []),)])]  # type: ignore[call-arg]
    assert [job.result(LIMIT) for job in jobs] == [Doc(-1, ["a"]), Doc(-2, []), Doc(-3, [])]
    assert sorted(doc.id for doc in seen) == [1, 2, 3]
    with pytest.raises(JobFailed, match="ValueError: none"):
        index.enqueue(Doc(0, [])).result(LIMIT)
    for wrong in ("x", {"id": "x", "words": []}, [Doc(1, [])]):
        with pytest.raises(ArgumentError, match=r"index: argument docs"):
            index.enqueue(wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="missing a required argument: 'docs'"):
        index.enqueue()  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="too many positional arguments"):
        index.enqueue(Doc(1, []), Doc(2, []))  # type: ignore[call-arg]


def test_called_directly_it_is_the_plain_function(app: App) -> None:
    @app.task(batch=10)
    def double(items: list[int]) -> list[int]:
        return [2 * item for item in items]

    @app.task(batch=10)
    async def adouble(items: Sequence[int]) -> list[int]:
        return [2 * item for item in items]

    async def call() -> Any:
        return await adouble([1, 2])

    assert double([1, 2]) == [2, 4]
    assert asyncio.run(call()) == [2, 4]


def two(items: list[int], more: int) -> None: ...
def none() -> None: ...
def named(*, items: list[int]) -> None: ...
def rest(*items: int) -> None: ...
def given(items: list[int] = []) -> None: ...  # noqa: B006
def one_list(items: list[int]) -> None: ...
def number(items: int) -> None: ...


@pytest.mark.parametrize("wrong", [two, none, named, rest, given])
def test_a_function_of_other_than_one_list_is_refused(app: App, wrong: Any) -> None:
    with pytest.raises(TypeError, match=rf"{wrong.__name__}\(.*with batch= a function takes one list and nothing else"):
        app.task(batch=10)(wrong)


@pytest.mark.parametrize("size", [0, -1, 10_001, 1.5, True, "10"])
def test_a_size_that_cannot_be_is_refused(app: App, size: Any) -> None:
    with pytest.raises(ValueError, match=rf"batch={size!r}: how many jobs a call gets at most, 1 to 10000"):
        app.task(batch=size)(one_list)


@pytest.mark.parametrize("wait", [-1, "soon"])
def test_a_wait_that_cannot_be_is_refused(app: App, wait: Any) -> None:
    with pytest.raises(ValueError, match=str(wait)):
        app.task(batch=10, wait=wait)(one_list)


def test_a_wait_without_a_batch_is_refused(app: App) -> None:
    settings: Any = {"wait": 1}
    with pytest.raises(TypeError, match="wait= says how long a call of many jobs waits to be filled: give batch= too"):
        app.task(**settings)(one_list)


def test_a_parameter_that_is_no_list_is_told_at_the_first_enqueue(app: App) -> None:
    anything: Any = number
    task = app.task(batch=10)(anything)
    with pytest.raises(ArgumentError, match=r"number: with batch= it takes a list, such as items: list\[str\], not <"):
        task.enqueue(1)


@kinds
def test_a_call_goes_out_when_it_is_full_or_the_first_has_waited(bench: Bench, kind: str) -> None:
    calls: list[tuple[float, int]] = []
    task = batched(bench.app, kind, lambda items: calls.append((clock.monotonic(), len(items))), batch=10, wait=0.3)
    bench.work()
    started = clock.monotonic()
    put(task, range(12))
    until(lambda: sum(size for _, size in calls) == 12)
    assert [size for _, size in calls] == [10, 2]
    assert calls[1][0] - started >= 0.29


def test_those_that_come_while_it_waits_go_along(bench: Bench) -> None:
    sizes: list[int] = []
    task = batched(bench.app, "sync", lambda items: sizes.append(len(items)), batch=4, wait=LIMIT)
    bench.work()
    for number in range(4):
        job = task.enqueue(number)
        until(lambda job=job: job.state != "ready")  # type: ignore[misc]
    job.result(LIMIT)
    assert sizes == [4]


@kinds
def test_stop_does_not_wait_and_gives_back_those_that_do(any_bench: Bench, kind: str) -> None:
    calls: list[int] = []
    task = batched(any_bench.app, kind, lambda items: calls.append(1), batch=10, wait=3600)
    jobs = put(task, range(5))
    worker = any_bench.work()
    until(lambda: {job.state for job in jobs} == {"running"})
    worker.end()
    assert {(job.state, job.record().failures, job.record().crashes) for job in jobs} == {("ready", 0, 0)}
    assert calls == []


@kinds
def test_a_batch_is_one_slot_and_no_more_is_claimed_than_can_be_used(bench: Bench, kind: str) -> None:
    gate = bench.gate()
    began: list[int] = []

    @bench.app.task(name="sync", batch=10, wait=0)
    def sync(items: list[int]) -> None:
        began.append(len(items))
        wait_for(gate)

    @bench.app.task(name="loop", batch=10, wait=0)
    async def loop(items: list[int]) -> None:
        began.append(len(items))
        await asyncio.to_thread(wait_for, gate)

    jobs = put(bench.app.tasks[kind], range(50))
    worker = bench.work(threads=2, coroutines=2)
    until(lambda: sum(began) == 20)
    until(lambda: sum(job.state == "running" for job in jobs) == 20)
    assert began == [10, 10]
    assert worker.pump.held_count == 20
    gate.set()
    until(lambda: all(job.state == "done" for job in jobs))
    assert sum(began) == 50


def test_a_cancelled_member_is_left_out_of_a_call_that_has_not_begun(any_bench: Bench) -> None:
    calls: list[list[int]] = []
    task = batched(any_bench.app, "sync", calls.append, batch=4, wait=LIMIT)
    jobs = put(task, range(3))
    worker = any_bench.work()
    until(lambda: {job.state for job in jobs} == {"running"})
    assert jobs[1].cancel("no longer")
    until(lambda: worker.pump.held_count == 2)
    put(task, [3, 4])
    until(lambda: calls)
    assert calls == [[0, 2, 3, 4]]
    assert finished(jobs[1]) == "cancelled"


def test_a_cancelled_member_is_left_out_of_a_call_that_stands_in_line(bench: Bench) -> None:
    gate, begun = bench.gate(), threading.Event()
    calls: list[list[int]] = []

    def work(items: list[int]) -> None:
        calls.append(items)
        begun.set()
        wait_for(gate)

    task = batched(bench.app, "sync", work, batch=2, wait=0)
    bench.work(threads=1)
    first = put(task, [0, 1])
    wait_for(begun)
    second = put(task, [2, 3])
    second[0].cancel()
    gate.set()
    for job in (*first, second[1]):
        job.result(LIMIT)
    assert [item for call in calls for item in call] == [0, 1, 3]


@kinds
def test_a_member_cancelled_during_the_call_sees_it_and_the_call_goes_on(bench: Bench, kind: str) -> None:
    seen: list[list[bool]] = []
    begun = threading.Event()

    def watch() -> list[int]:
        jobs = current_jobs()
        begun.set()
        until(lambda: any(job.stopping for job in jobs))
        seen.append([job.stopping for job in jobs])
        return [1, 2, 3]

    @bench.app.task(name="sync", batch=3)
    def sync(items: list[int]) -> list[int]:
        return watch()

    @bench.app.task(name="loop", batch=3)
    async def loop(items: list[int]) -> list[int]:
        return watch()

    jobs = put(bench.app.tasks[kind], range(3))
    bench.work()
    wait_for(begun)
    jobs[1].cancel()
    assert [jobs[0].result(LIMIT), jobs[2].result(LIMIT)] == [1, 3]
    assert (jobs[1].state, seen) == ("cancelled", [[False, True, False]])


def test_a_call_whose_members_are_all_cancelled_is_broken_off(bench: Bench) -> None:
    begun, ended = threading.Event(), threading.Event()

    @bench.app.task(batch=2)
    def spin(items: list[int]) -> None:
        begun.set()
        try:
            until(lambda: False, LIMIT)
        finally:
            ended.set()

    jobs = put(spin, range(2))
    worker = bench.work()
    wait_for(begun)
    for job in jobs:
        job.cancel()
    wait_for(ended)
    until(lambda: not worker.pump.held_count)
    assert [job.state for job in jobs] == ["cancelled"] * 2


@kinds
def test_the_timeout_is_the_calls(bench: Bench, kind: str) -> None:
    raised: list[type[BaseException]] = []

    def spin() -> None:
        try:
            until(lambda: False, LIMIT)
        except BaseException as error:
            raised.append(type(error))
            raise

    @bench.app.task(name="sync", batch=3, timeout=0.5)
    def sync(items: list[int]) -> None:
        spin()

    @bench.app.task(name="loop", batch=3, timeout=0.5)
    async def loop(items: list[int]) -> None:
        await asyncio.sleep(LIMIT)

    jobs = put(bench.app.tasks[kind], range(3))
    bench.work()
    assert {finished(job) for job in jobs} == {"dead"}
    assert {note(job)["message"] for job in jobs} == {"stopped after its timeout of 0.5 s"}
    assert raised == ([TimeLimit] if kind == "sync" else [])


@kinds
def test_the_jobs_of_a_call_are_known_in_it(bench: Bench, kind: str) -> None:
    seen: list[list[str]] = []

    def work(items: list[int]) -> None:
        jobs = current_jobs()
        seen.append([job.id for job in jobs])
        for number, job in enumerate(jobs):
            job.progress(number / 10, f"item {items[number]}")
        with pytest.raises(RuntimeError, match=r"many is called for many jobs at once: current_jobs\(\) has th"):
            current_job()
        assert {(job.attempt, job.task) for job in jobs} == {(1, "many")}
        assert all(job.deadline is not None and job.deadline > clock.monotonic() for job in jobs)

    jobs = put(batched(bench.app, kind, work, batch=3, timeout=60), "abc")
    bench.work()
    for job in jobs:
        job.result(LIMIT)
    assert seen == [[job.id for job in jobs]]
    assert [job.progress for job in jobs] == [Progress(n / 10, f"item {item}") for n, item in enumerate("abc")]


def test_in_an_ordinary_task_there_is_one_and_outside_none(bench: Bench) -> None:
    @bench.app.task
    def one() -> bool:
        return [job.id for job in current_jobs()] == [current_job().id]

    bench.work()
    assert one.enqueue().result(LIMIT)
    with pytest.raises(RuntimeError, match=r"current_jobs\(\) is for code that a worker runs; no job runs here"):
        current_jobs()


@kinds
def test_arguments_that_do_not_fit_are_one_jobs_own_end(bench: Bench, kind: str) -> None:
    calls: list[list[int]] = []

    @bench.app.task(name="sync", batch=3, wait=0.05)
    def sync(items: list[int]) -> None:
        calls.append(items)

    @bench.app.task(name="loop", batch=3, wait=0.05)
    async def loop(items: list[int]) -> None:
        calls.append(items)

    stranger = App(bench.app.store_url)
    client = stranger.client
    bodies = [b"[1]", b'["x"]', b'{"items":3}', b"nonsense", b"[]"]
    jobs = client.insert_jobs([client.make_job(kind, body) for body in bodies])
    bench.work()
    assert [finished(job) for job in jobs] == ["done", "dead", "done", "dead", "dead"]
    assert {note(job)["type"] for job in (jobs[1], jobs[3], jobs[4])} == {"ArgumentError"}
    assert sorted(item for call in calls for item in call) == [1, 3]
    stranger.close()


def test_a_job_that_was_to_start_in_time_does_not_start_after_it_has_waited(bench: Bench) -> None:
    calls: list[list[int]] = []
    task = batched(bench.app, "sync", calls.append, batch=10, wait=0.4)
    bench.work()
    late, other = task.using(expires=0.2).enqueue(1), task.enqueue(2)
    assert finished(late) == "cancelled"
    other.result(LIMIT)
    assert (note(late)["type"], calls) == ("Expired", [[2]])


def test_batch_tasks_and_others_side_by_side(any_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "STALLED_AFTER", LIMIT)  # a machine that stands still for a moment is not our matter
    sizes: list[int] = []
    many = batched(any_bench.app, "sync", lambda items: sizes.append(len(items)), batch=50, wait=0.02)

    @any_bench.app.task(name="one")
    def one(number: int) -> int:
        return number

    @any_bench.app.task(name="aone")
    async def aone(number: int) -> int:
        return number

    jobs: list[Job[Any]] = []
    for number in range(20):
        jobs += put(many, range(20))
        jobs += put(one, [number] * 3)
        jobs += put(aone, [number] * 3)
    any_bench.work(threads=2)
    for job in jobs:
        job.result(LIMIT)
    assert sum(sizes) == 400
    assert {job.record().epoch for job in jobs[:20]} == {1}


def test_an_ordinary_job_does_not_wait_behind_one_of_a_batch_that_waits(bench: Bench) -> None:
    task = batched(bench.app, "sync", lambda items: None, batch=10, wait=3600)

    @bench.app.task
    def one() -> int:
        return 1

    bench.work(threads=1)
    waiting = put(task, range(3))
    until(lambda: {job.state for job in waiting} == {"running"})
    assert one.enqueue().result(LIMIT) == 1


def test_two_batch_tasks_that_wait_leave_each_other_room(bench: Bench) -> None:
    """One slot, and each has half a call in hand: more is claimed all the same, until one is full."""
    sizes: list[tuple[str, int]] = []

    @bench.app.task(batch=10, wait=3600, name="a")
    def a(items: list[int]) -> None:
        sizes.append(("a", len(items)))

    @bench.app.task(batch=10, wait=3600, name="b")
    def b(items: list[int]) -> None:
        sizes.append(("b", len(items)))

    bench.work(threads=1)
    for _ in range(9):
        put(a, [1])
        put(b, [1])
    until(lambda: not bench.app.client.store.queues())
    put(a, [1])
    put(b, [1])
    until(lambda: sorted(sizes) == [("a", 10), ("b", 10)])


def test_one_that_was_on_when_a_worker_died_is_called_alone(any_bench: Bench) -> None:
    calls: list[list[int]] = []
    task = batched(any_bench.app, "sync", lambda items: calls.append(sorted(items)), batch=10, wait=0.05)
    suspects = put(task, range(3))
    store = any_bench.app.client.store
    store.claim([Want("default", band, 9) for band in BANDS], 9, "gone", 30_000_000, store.time())
    on = suspects[0].record().id.hex()
    Keeper(store, rules=any_bench.app.rules, batch_tasks=["many"]).rescue("gone", on=[on])
    assert {(job.state, job.record().crashes) for job in suspects} == {("ready", 1)}
    others = put(task, range(10, 13))
    any_bench.work()
    for job in (*suspects, *others):
        job.result(LIMIT)
    assert sorted(calls) == [[0], [1], [2], [10, 11, 12]]


def left_behind(losses: Sequence[int]) -> tuple[Keeper, list[Job[Any]]]:
    """What a worker that is gone held, each of which had so many losses before; and a keeper who does not know yet."""
    store = MemoryStore()
    app = App(store, closures=True)
    jobs = put(batched(app, "sync", lambda items: None, batch=10), range(len(losses)))
    keeper = Keeper(store, rules=app.rules, batch_tasks=["many"])
    wants = [Want("default", band, 100) for band in BANDS]
    for round_ in range(max(losses)):
        claimed = store.claim(wants, 100, "before", 30_000_000, store.time())
        on = [job.id.hex() for job, lost in zip(claimed, losses, strict=True) if lost > round_]
        Keeper(store, rules=app.rules).rescue("before", on=on)
    store.claim(wants, 100, "gone", 30_000_000, store.time())
    return keeper, jobs


def test_one_called_alone_answers_for_itself_only() -> None:
    keeper, jobs = left_behind([1, 1, 0, 0])
    keeper.rescue("gone", on=[jobs[0].record().id.hex()])
    assert [job.record().crashes for job in jobs] == [2, 1, 0, 0]


def test_those_called_together_answer_together_and_not_those_that_were_to_be_called_alone() -> None:
    keeper, jobs = left_behind([1, 1, 0, 0])
    keeper.rescue("gone", on=[jobs[2].record().id.hex()])
    assert [job.record().crashes for job in jobs] == [1, 1, 1, 1]


def test_a_call_that_does_not_end_after_its_timeout_is_nobodys_proven_fault() -> None:
    keeper, jobs = left_behind([1, 0, 0])
    keeper.rescue("gone", on=[jobs[1].record().id.hex()], stuck=[jobs[1].record().id.hex()])
    assert [(job.state, job.record().crashes) for job in jobs] == [("ready", 1), ("ready", 1), ("ready", 1)]


def test_a_call_that_another_has_now_is_no_proof_against_what_the_dead_one_held() -> None:
    """A store that lost a claim gives the job again with the same epoch."""
    keeper, jobs = left_behind([0, 0, 0])
    store, now = keeper._store, keeper._store.time()
    assert store.apply([lifecycle.after(jobs[2].record(), Released(), lifecycle.DEFAULT, now)], now) == [True]
    (taken,) = store.claim([Want("default", band, 1) for band in BANDS], 1, "another", 30_000_000, now)
    keeper.rescue("gone", stuck=[taken.id.hex()], epochs={taken.id.hex(): taken.epoch})
    assert [(job.state, job.record().crashes) for job in jobs] == [("ready", 0), ("ready", 0), ("running", 0)]


def test_without_a_master_what_a_dead_worker_held_of_one_call_is_suspect_and_then_tried_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper, jobs = left_behind([0, 0, 0])
    store = keeper._store
    monkeypatch.setattr(owner, "is_dead", lambda name: True)
    keeper.rescue_dead()
    assert [job.record().crashes for job in jobs] == [1, 1, 1]
    store.claim([Want("default", band, 100) for band in BANDS], 100, "next", 30_000_000, store.time())
    keeper.rescue_dead()
    assert [job.record().crashes for job in jobs] == [1, 1, 1], "it would have held one only"


def test_of_those_to_be_called_alone_no_more_are_held_than_can_run(bench: Bench) -> None:
    gate = bench.gate()
    calls: list[list[int]] = []

    @bench.app.task(name="many", batch=10, wait=0)
    def many(items: list[int]) -> None:
        calls.append(items)
        if len(calls) == 1:
            wait_for(gate)

    jobs = put(many, range(10))
    store = bench.app.client.store
    store.claim([Want("default", band, 10) for band in BANDS], 10, "gone", 30_000_000, store.time())
    on = jobs[0].record().id.hex()
    Keeper(store, rules=bench.app.rules, batch_tasks=["many"]).rescue("gone", on=[on])
    worker = bench.work(threads=1)
    until(lambda: calls)
    until(lambda: sum(job.state == "ready" for job in jobs) == 9)
    until(lambda: worker.pump.held_count == 1)
    gate.set()
    for job in jobs:
        job.result(LIMIT)
    assert sorted(calls) == [[number] for number in range(10)]


def test_hooks_are_called_for_each_job(bench: Bench) -> None:
    told: list[tuple[str, str, str]] = []
    task = batched(bench.app, "sync", lambda items: [1, ValueError("x"), Fail("y")], batch=3, retry=Retry(1, base=3600))
    bench.app.on_success(lambda job, value: told.append(("success", job.id, repr(value))))
    bench.app.on_failure(lambda job, error: told.append(("failure", job.id, repr(error))))
    bench.app.on_dead(lambda job, error: told.append(("dead", job.id, repr(error))))
    jobs = put(task, range(3))
    bench.work()
    until(lambda: not {"ready", "running"} & {job.state for job in jobs})
    assert told == [
        ("success", jobs[0].id, "1"),
        ("failure", jobs[1].id, "ValueError('x')"),
        ("failure", jobs[2].id, "Fail('y')"),
        ("dead", jobs[2].id, "Fail('y')"),
    ]


def test_drain_does_not_wait_for_a_call_to_be_full(app: App) -> None:
    sizes: list[int] = []
    task = batched(app, "sync", lambda items: sizes.append(len(items)), batch=10, wait=3600)
    jobs = put(task, range(13))
    assert app.drain() == 13
    assert {job.state for job in jobs} == {"done"}
    assert sum(sizes) == 13


def test_twenty_thousand_drain_as_fast_as_one_by_one(bench: Bench) -> None:
    @bench.app.task(name="one")
    def one(number: int) -> None: ...

    many = batched(bench.app, "sync", lambda items: None, batch=100, wait=0.1)

    def seconds(task: Task[Any, Any]) -> float:
        put(task, range(20_000))
        worker = bench.idle(threads=1)
        # The processor's time: how long it takes depends on what else the machine does.
        started = clock.process_time()
        worker.start()
        until(lambda: worker.pump.events.processed == 20_000, 60)
        took = clock.process_time() - started
        worker.end()
        return took

    took = [(seconds(one), seconds(many)) for _ in range(3)]
    alone, together = (min(times) for times in zip(*took, strict=True))
    assert together < 2 * alone
