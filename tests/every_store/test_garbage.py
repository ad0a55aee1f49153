"""Whatever another program has written to a store: workers, keepers, the HTTP API, the console and commands go on."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from tarry import App, Cron, Retry
from tarry.cli.main import main
from tarry.client.tasks.task import Task
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.model.limit import Limit
from tarry.server.http.methods.events import METHODS as STREAMS
from tarry.server.serving.api import METHODS
from tarry.server.serving.console import PAGES
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Want
from tarry.store.shards.sharded import ShardedStore
from tests.every_store.garbage import BYTES, garbage, insert_each, spoiled
from tests.server.http.calling import api, run

CELLS = (
    "limit:queue:q", "limit:", "limit:each:eat", "cron:tick", "cron:\n", "task:hook", "task:", "flow:hook", "gone:hook",
    "edits:hook", "order:hook", "host:a|b:1:2:0", "host-request:a", "host-outcome:a", "room:q", "dropped:q", "bounds",
    "bounds by hand", "operations/x", "audit/head", "audit/1", "alert:open", "console/secret", "beanstalk/pause/q",
    "beanstalk/slot", "external/q", "place:x", f"place:{'0' * 32}:1:nobody",
)  # fmt: skip


def make_tasks(app: App) -> Task[Any, Any]:
    @app.task(name="eat", queue="q", retry=Retry(2, base=3600), cron=Cron("* * * * *", name="tick"))
    def eat(one: int = 0) -> int:
        if one == 13:
            raise ValueError("no")
        return one

    @app.task(name="sip", queue="q")
    async def sip(one: int = 0) -> int:
        return one

    return eat


def put_garbage(app: App, body: bytes = b"[13]", queue: str = "q") -> list[Job]:
    """Jobs, each with garbage in one column; those that are not spoiled in their body fail."""
    store, now = app.client.store, app.client.clock.now()
    names = itertools.cycle(("eat", "sip"))
    fresh = [Job(ids.uuid7(), next(names), body, queue, due=now, state_since=now) for _ in range(400)]
    jobs = insert_each(store, spoiled(fresh, garbage(fresh[0])))
    assert len(jobs) > 200
    return jobs


def states(app: App, jobs: list[Job]) -> Counter[str]:
    return Counter(job.state.value if job else "gone" for job in app.client.store.get([one.id for one in jobs]))


def test_a_worker_goes_on(app: App) -> None:
    eat = make_tasks(app)
    jobs = put_garbage(app)
    for _ in range(3):
        app.drain()
    good = eat.enqueue(1)
    app.drain()
    assert good.result(timeout=5) == 1
    assert not app.client.store.find(Query((State.RUNNING,)))
    assert states(app, jobs)["dead"] > 20


def test_a_keeper_goes_on(app: App) -> None:
    make_tasks(app)
    store = app.client.store
    jobs = put_garbage(app, queue="held")
    good = Job(ids.uuid7(), "eat", b"[1]", "held")
    store.insert([good])
    now = app.client.clock.now()
    for _ in range(10):
        store.exchange([], [Want("held", band, 1000) for band in (1, 0, -1)], 1000, "gone", SECOND, now)
    keeper = app.keeper(store)
    keeper.rescue("gone", [job.id.hex() for job in jobs])
    assert states(app, [good]) == {"ready": 1}
    assert not store.find(Query((State.RUNNING,)))
    for _ in range(3):
        for chore in keeper._chores:
            keeper._run_chore(chore)
        keeper.tick()
    assert keeper.chores_failed == 0
    keeper.close()


ROUTES = [method.route for method in METHODS if method.verb == "GET" and method not in STREAMS]
ROUTES += [page.route for page in PAGES]
OF_A_JOB = [route for route in ROUTES if "{id}" in route and "operation" not in route]


def paths(jobs: list[Job], in_turn: int = 1) -> Iterator[str]:
    """Of each method and page; of those about one job, for each job one of so many."""
    for route in ROUTES:
        if route in OF_A_JOB:
            first = OF_A_JOB.index(route) % in_turn
            yield from (route.replace("{id}", ids.text(job.id)) for job in jobs[first::in_turn])
        else:
            path = route
            for name, value in (("queue", "q"), ("task", "eat"), ("schedule", "tick"), ("limit", "queue:q"),
                                ("host", "a|b:1:2:0"), ("id", "x")):  # fmt: skip
                path = path.replace(f"{{{name}}}", quote(value, safe=""))
            yield path


def visit(app: App, jobs: list[Job], in_turn: int = 1) -> None:
    async def story() -> None:
        async with api(app) as client:
            failed = [path for path in paths(jobs, in_turn) if (await client.get(path)).status_code >= 500]
            assert failed == []

    run(story)


def urls_of(app: App) -> list[str]:
    store = app.client.store
    return [shard.url for shard in store.shards] if isinstance(store, ShardedStore) else [store.url]


def test_methods_and_pages_go_on(
    app: App, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_tasks(app)
    jobs = put_garbage(app)
    # A job that can be read is the same from every store: all that shows it is looked at once, and on each of the
    # others every job by one method or page at least.
    in_turn = 1 if isinstance(app.client.store, MemoryStore) else len(OF_A_JOB)
    visit(app, jobs, in_turn)
    app.drain()
    visit(app, jobs[::7], in_turn)
    if isinstance(app.client.store, MemoryStore):
        return
    monkeypatch.chdir(tmp_path)
    urls = urls_of(app)
    monkeypatch.setenv("TARRY_STORE", msgspec.json.encode(urls).decode() if len(urls) > 1 else urls[0])
    for words in (
        ["jobs"],
        ["jobs", "--json"],
        ["jobs", "show", "--queue", "q", "--json"],
        ["jobs", "why", "--queue", "q"],
        ["stats"],
        ["queues"],
        ["flows"],
    ):
        assert main(words) == 0, (words, capsys.readouterr().err)
    capsys.readouterr()


@pytest.mark.parametrize("part", range(4))
def test_cells_of_garbage(app: App, part: int) -> None:
    eat = make_tasks(app)
    store = app.client.store
    for at, value in enumerate(BYTES[part::4]):
        for name in CELLS:
            store.kv_cas(name, value, store.kv_get(name))
        # Levels are counted anew beside these cells.
        store.limit("queue:q", None)
        store.limit("queue:q", Limit(100))
        good = eat.enqueue(1)
        app.drain()
        assert good.result(timeout=5) == 1
        keeper = app.keeper(store)
        for chore in keeper._chores:
            keeper._run_chore(chore)
        keeper.tick()
        assert keeper.chores_failed == 0
        keeper.close()
        # A cell is the same bytes from every store: to look at all pages with each on one of them is enough.
        if not at or isinstance(store, MemoryStore):
            visit(app, [])
