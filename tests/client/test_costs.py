"""Jobs that cost more than one start of a rate: `using(cost=3)`, `@app.task(cost=...)`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry import App, current_job
from tarry.errors import ArgumentError
from tarry.model.overrides import cost_of
from tarry.tasks.arguments.options import Options
from tarry.testing import Jobs


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/tarry.db", closures=True)
    yield app
    app.close()


def cost(job: Any) -> int:
    """What a job costs."""
    return cost_of(job.record().headers)


def test_a_task_says_what_its_jobs_cost(app: App) -> None:
    """From the arguments, defaults filled in; a call may say otherwise."""

    @app.task(name="ask", cost=lambda n: n * 2)
    def ask(prompt: str, n: int = 5) -> None: ...

    @app.task(name="send", cost=7)
    def send(to: str) -> None: ...

    assert cost(ask.enqueue("x")) == 10
    assert cost(ask.enqueue("x", 3)) == 6
    assert cost(ask.using(cost=4, labels={"customer": "7"}).enqueue("x")) == 4
    assert ask.using(labels={"customer": "7"}).enqueue("x").record().labels == {"customer": "7"}
    assert [cost(job) for job in ask.enqueue_many([("x", 1), ("x",), ("x", 2)])] == [2, 10, 4]
    assert [cost(job) for job in ask.enqueue_many([("x", 1), ("x", 2)], over="1h")] == [2, 4]
    assert cost(app.enqueue("ask", "x", 8)) == 16
    assert cost_of(app.client.make_job("elsewhere.ask", b"[]", Options(cost=9)).headers) == 9
    assert cost(send.enqueue("ann")) == 7


def test_a_node_of_a_flow_costs_as_much(app: App) -> None:
    @app.task(name="ask", cost=lambda n: n)
    def ask(n: int) -> int:
        return n

    with app.flow("two") as flow:
        first = flow.add(ask.call(6))
        with pytest.raises(ArgumentError, match=r"ask: cost= cannot use the result of another node"):
            flow.add(ask.call(first.result))
        flow.add(ask.using(cost=4).call(first.result))
    nodes = list(app.jobs(task="ask"))
    assert sorted(map(cost, nodes)) == [4, 6]


def test_a_job_that_costs_one_has_no_header(app: App) -> None:
    @app.task(name="ask", cost=lambda n: n)
    def ask(n: int) -> None: ...

    assert ask.enqueue(1).record().headers == b""
    assert ask.using(cost=1).enqueue(5).record().headers == b""


@pytest.mark.parametrize("wrong", [0, -1, 2**31 + 1, 1.5, "3", True])
def test_what_is_no_cost_is_refused(app: App, wrong: Any) -> None:
    @app.task(name="ask", cost=lambda n: n)
    def ask(n: Any) -> None: ...

    with pytest.raises(ValueError, match=r"cost=.*: how many starts a rate counts, from 1 to 2147483648"):
        ask.using(cost=wrong)
    with pytest.raises(ValueError, match=r"ask: cost=.*: how many starts a rate counts"):
        ask.enqueue(wrong)
    assert app.client.store.counts() == []


def test_a_cost_that_asks_for_what_the_task_has_not_is_refused(app: App) -> None:
    with pytest.raises(TypeError, match="ask: cost asks for m"):

        @app.task(name="ask", cost=lambda m: m)
        def ask(n: int) -> None: ...


def test_more_than_a_whole_period_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With both numbers, and the name of the limit; nothing is stored."""
    (tmp_path / "tarry.toml").write_text('[queues.slow]\nrate = "10/m"\n')
    monkeypatch.chdir(tmp_path)
    app = App(f"sqlite:///{tmp_path}/tarry.db", closures=True)

    @app.task(name="ask", rate="100/m", cost=lambda n: n)
    def ask(n: int) -> None: ...

    ask.enqueue(100)
    for refused in (lambda: ask.enqueue(101), lambda: ask.using(cost=101).enqueue(1), lambda: app.enqueue("ask", 101)):
        with pytest.raises(
            ValueError, match="cost=101 is more than task:ask lets start in a whole period: 100 in 60 s"
        ):
            refused()
    with pytest.raises(ValueError, match="cost=11 is more than queue:slow lets start in a whole period: 10 in 60 s"):
        ask.using(queue="slow").enqueue(11)
    with pytest.raises(ValueError, match="cost=101"):
        ask.enqueue_many([(1,), (101,)])
    assert sum(tally.count for tally in app.client.store.counts()) == 1
    app.close()


def test_it_holds_back_what_follows(jobs: Jobs) -> None:
    """As long as that many starts take; and `spend` corrects it."""
    app = App(closures=True)

    @app.task(name="ask", rate="20/20s", cost=lambda cost, used: cost)
    def ask(cost: int, used: int) -> None:
        current_job().spend(used)

    first, second = ask.enqueue(15, 15), ask.enqueue(10, 2)
    jobs.drain()
    assert (first.state, second.state) == ("done", "ready")
    jobs.advance(14)
    jobs.drain()
    assert second.state == "ready"
    jobs.advance(1)
    jobs.drain()
    assert second.state == "done"
    third = ask.enqueue(1, 1)
    jobs.advance(2)
    jobs.drain()
    assert third.state == "done"
