"""Sealed payloads, where a process lacks their key: nothing is lost by that."""

import base64
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tarry import App, State, current_job
from tarry.client.operations.job_cloning import clone_job
from tarry.compat.celery.result import AsyncResult
from tarry.errors import ValueSealed
from tarry.model import moving
from tarry.model.refusals import NotPossible
from tests.cli.project import until

LARGE = "x" * 50_000
Open = Callable[[Sequence[str]], AbstractContextManager[App]]


@pytest.fixture
def opened(tmp_path: Path, keep_apart: Callable[..., App], monkeypatch: pytest.MonkeyPatch) -> Open:
    """The app with these of the keys K1 and K2."""
    for number, name in enumerate(("K1", "K2")):
        monkeypatch.setenv(name, base64.b64encode(bytes([number]) * 32).decode())

    def make(names: Sequence[str]) -> AbstractContextManager[App]:
        app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)
        keep_apart(app, keys=[f"env:{name}" for name in names])
        app.task(name="plain", retry=None)(echo)
        app.task(name="batched", retry=None, batch=2)(echo)
        app.task(name="awaited", retry=None)(awaited)
        app.task(name="reads", retry=None)(reads)
        return closing(app)

    return make


def echo(value: Any) -> Any:
    return value


def reads() -> list[Any]:
    return list(current_job().results())


async def awaited(value: Any) -> Any:
    return value


@pytest.mark.parametrize("names", [["K2"], []])
def test_a_job_waits_for_a_worker_with_the_key(opened: Open, names: list[str]) -> None:
    with opened(["K1"]) as app:
        ids = [app.tasks[name].enqueue(LARGE).id for name in ("plain", "batched", "awaited")]
    with opened(names) as app:
        app.drain(timeout=1)
        records = [app.get(id).record() for id in ids]
        assert [(record.state, record.failures) for record in records] == [(State.SCHEDULED, 0)] * 3
        assert all(b"sealed with key" in record.note or b"NoKey" in record.note for record in records), records
    with opened(["K2", "K1"]) as app:
        for id in ids:
            app.get(id).retry()
        until(lambda: app.drain() >= 0 and all(app.get(id).state is State.DONE for id in ids))


def test_a_node_waits_for_a_worker_that_opens_what_it_takes(opened: Open) -> None:
    with opened(["K1"]) as app:
        with app.flow("two") as flow:
            first = flow.add(app.tasks["plain"].call(LARGE))
            flow.add(app.tasks["plain"].using(queue="later").call(first.result))
        until(lambda: app.drain(queues=["default"]) >= 0 and app.jobs(task="plain", state="done"))
        id = flow.handle.id
    with opened(["K2"]) as app:
        app.drain(queues=["later"], timeout=1)
        assert not app.get(id).state.finished


@pytest.mark.parametrize("value", ["small", LARGE])
def test_what_a_node_waits_for_is_told_and_costs_no_attempt(opened: Open, value: str) -> None:
    with opened(["K2"]) as app, app.flow("two") as flow:
        first = flow.add(app.tasks["plain"].call(value))
        flow.add(app.tasks["plain"].using(queue="later").call(first.result))
        flow.add(app.tasks["reads"].using(queue="later").call(), after=[first])
    with opened(["K1", "K2"]) as app:
        until(lambda: app.drain(queues=["default"]) >= 0 and app.jobs(task="plain", state="done"))
    with opened(["K2"]) as app:
        app.drain(queues=["later"], timeout=1)
        nodes = [job.record() for job in (*app.jobs(queue="later", task="plain"), *app.jobs(task="reads"))]
        assert [(node.state, node.failures) for node in nodes] == [(State.SCHEDULED, 0)] * 2
        assert b"the result of node 1 is sealed with key" in nodes[0].note


def test_a_result_that_somebody_altered_is_no_argument(opened: Open) -> None:
    with opened(["K1"]) as app:
        with app.flow("two") as flow:
            first = flow.add(app.tasks["plain"].call("small"))
            flow.add(app.tasks["plain"].using(queue="later").call(first.result))
        until(lambda: app.drain(queues=["default"]) >= 0 and app.jobs(task="plain", state="done"))
        (done,) = app.jobs(task="plain", state="done")
        store = app.client.store._inner._inner  # type: ignore[attr-defined]
        (sealed,) = store.get([done.raw_id])
        change = replace(moving.park(sealed), note=sealed.note[:-6] + b'AAAA"}', to=State.DONE, due=sealed.due)
        assert store.apply([change], store.time()) == [True]
        until(lambda: app.drain() >= 0 and flow.handle.state.finished)
        assert flow.handle.state is State.DEAD


def test_there_is_no_clone_that_nobody_could_read(opened: Open) -> None:
    with opened(["K1"]) as app:
        id = app.tasks["plain"].enqueue(LARGE).id
    with opened(["K2"]) as app:
        del app.tasks["plain"]
        with pytest.raises(NotPossible, match="no key that opens them"):
            clone_job(app.client, app.get(id).record(), None, with_key=False)


def test_a_result_of_celery_says_so_of_a_task_that_is_not_imported(opened: Open) -> None:
    with opened(["K1"]) as app:
        id = app.tasks["plain"].enqueue(LARGE).id
    with opened(["K2"]) as app:
        del app.tasks["plain"]
        with pytest.raises(ValueSealed, match="plain is sealed with key"):
            _ = AsyncResult(id, app=app).args
