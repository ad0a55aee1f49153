"""Pages for operators: queues with who works on them, limits and who holds them, stores."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry import App
from tarry.keeper.hosts import HostEntry
from tarry.metrics.store_overview import StoreOverview
from tarry.model.duration import MINUTE
from tarry.model.job import State
from tarry.model.limit import Limit
from tarry.server.console.views.queues import QueueTask, pools_that_serve, queue_tasks
from tarry.server.console.views.stores import QueueSize, queue_sizes
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.hosts import Host, PoolFigures
from tarry.store.rules.base import Tally, Want
from tarry.store.sqlite.store import SqliteStore
from tests.server.http.calling import api, run
from tests.store.switched import Switched

TALLIES = [
    Tally("mails", "mail", State.READY, 3, 1, 30),
    Tally("mails", "mail", State.DONE, 2, 1, 70),
    Tally("mails", "note", State.DEAD, 1, 1, 5),
    Tally("bulk", "mail", State.READY, 9, 1, 900),
]
MAILS = PoolFigures("mails", workers=2, busy=1, queues=["mails"])


@pytest.fixture
def app() -> App:
    return with_mail(MemoryStore())


def with_mail(store: Any) -> App:
    app = App(store, closures=True)

    @app.task(name="mail", queue="mails")
    def mail(to: str) -> None: ...

    return app


def told(app: App, *paths: str, before: Callable[[], None] | None = None, first: str = "/operations") -> list[str]:
    """The pages with these addresses; `before` is called once the first one was got."""

    async def story() -> list[httpx.Response]:
        async with api(app) as client:
            await client.get(first)
            if before is not None:
                before()
            return [await client.get(path) for path in paths]

    got = run(story)
    assert [one.status_code for one in got] == [200] * len(got), got[0].text
    return [re.sub(r"\s+", " ", one.text) for one in got]


def claim(app: App) -> str:
    store = app.client.store
    (job,) = store.claim([Want("mails", 0, 1)], 1, "host|1.1:77:99:1", MINUTE, app.client.clock.now())
    return job.id.hex()[-8:]


def look(*hosts: Host) -> StoreOverview:
    return StoreOverview(TALLIES, {}, {}, hosts, 0)


def test_the_tasks_of_a_queue() -> None:
    assert queue_tasks(look(), "mails") == [QueueTask("mail", ready=3), QueueTask("note", dead=1)]
    assert queue_tasks(look(), "other") == []


def test_the_pools_that_serve_a_queue() -> None:
    serving, lost = Host("a", "web-1", pools=[MAILS]), Host("b", "web-2", state="lost", pools=[PoolFigures("old")])
    found = pools_that_serve(look(serving, lost), "mails")
    assert found is not None
    assert [(one.host, one.pool) for one in found] == [("web-1", MAILS)]
    assert pools_that_serve(look(serving), "bulk") == []
    assert pools_that_serve(look(serving, Host("c", "web-3", pools=[PoolFigures("old")])), "mails") is None


def test_the_page_of_a_queue_tells_the_weight_that_each_pool_gives_it() -> None:
    weighted = PoolFigures("w", queues=["bulk", "mails"], weights={"bulk": 1, "mails": 3})
    pools = [weighted, PoolFigures("all", queues=["*"]), PoolFigures("two", queues=["bulk", "mails"])]
    found = pools_that_serve(look(Host("a", "web-1", pools=pools)), "mails")
    assert found is not None
    assert [(one.pool.name, one.share) for one in found] == [("w", 0.75), ("all", None), ("two", 0.5)]


def test_the_size_of_queues() -> None:
    assert queue_sizes(TALLIES) == [QueueSize("bulk", 9, 0, 900), QueueSize("mails", 6, 3, 105)]


def test_a_queue_tells_who_serves_it_and_which_jobs_run(app: App) -> None:
    HostEntry(app.client.store, lambda: Host("h|1.1:1:1", "web-1", pools=[MAILS])).register_host()
    for name in ("ann", "bob"):
        app.named("mail").enqueue(name)
    short = claim(app)
    (text,) = told(app, "/queues/mails")
    assert 'web-1/mails</a> <span class="dim">1 of 2 busy</span>' in text
    assert f">{short}</a>" in text
    assert 'title="host|1.1:77:99:1"' in text
    assert "/cancel" in text


def test_a_queue_that_no_pool_serves_says_so(app: App) -> None:
    app.named("mail").using(queue="lonely").enqueue("ann")
    HostEntry(app.client.store, lambda: Host("h|1.1:1:1", "web-1", pools=[MAILS])).register_host()
    assert "no pool of a master that runs" in told(app, "/queues/lonely")[0]


def test_limits_tell_who_holds_them(app: App) -> None:
    app.client.store.limit("queue:mails", Limit(1))
    app.client.store.limit("task:mail", Limit(5, 10, MINUTE))
    for name in ("ann", "bob"):
        app.named("mail").enqueue(name)
    assert "Who holds" not in told(app, "/limits")[0]
    short = claim(app)
    limits, queue, task = told(app, "/limits", "/queues/mails", "/tasks/mail")
    assert "Who holds queue:mails" in limits
    assert "Who holds task:mail" not in limits
    assert f">{short}</a>" in limits
    # Forms hold what is set now, as they take it.
    assert 'name="at_once" inputmode="numeric" size="5" value="5"' in limits
    assert 'value="10/60s"' in limits
    assert "1 of 1 run" in queue
    assert "1 of 5 run" in task


def test_stores_tell_what_to_change_and_how_large_queues_are(tmp_path: Path) -> None:
    app = with_mail(SqliteStore(tmp_path / "tarry.db"))
    app.named("mail").enqueue("ann")
    (text,) = told(app, "/stores")
    assert "answers in " in text
    assert "<td>durability</td>" in text
    assert '<td class="n">1</td><td class="n">0</td><td class="n">7 B</td>' in text


def test_a_store_that_is_away_is_told_of_on_its_page() -> None:
    store = Switched(MemoryStore())
    (text,) = told(with_mail(store), "/stores", before=store.down)
    assert "no answer" in text
    assert "There are no jobs" in text


def test_a_store_that_has_just_gone_is_asked_anew() -> None:
    store = Switched(MemoryStore())
    # Its health was read before, and its jobs were not counted yet.
    (text,) = told(with_mail(store), "/stores", before=store.down, first="/v1/stores")
    assert "no answer" in text
