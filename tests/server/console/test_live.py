"""Open pages hear of what changes, and all of them together cost a bounded part of the store's time."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from tarry import App
from tarry.server import event_streams
from tarry.server.console import page_updates
from tarry.server.console.page_updates import EVERY, OLDEST, SHARE, LookChanges, RefreshBudget
from tarry.server.service import DoorService
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.hosts import Host, PoolFigures
from tests.server.console.visiting import Tokens, Visitor, visit
from tests.server.http.calling import run
from tests.server.http.serving import served
from tests.store.switched import Switched


class Hands:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Page:
    """What an open page hears, with a clock that is set by hand."""

    def __init__(self, app: App) -> None:
        self.clock = Hands()
        self.service = DoorService(app)
        self.budget = RefreshBudget(self.clock)
        self.changes = LookChanges(self.service, self.budget, self.clock)

    async def hears(self, after: float = EVERY) -> bool:
        self.clock.now += after
        self.service.look._look = None  # what was read is old by now
        return bool(await self.changes.next_batch())


@pytest.fixture
def store() -> Switched:
    return Switched(MemoryStore())


@pytest.fixture
def app(store: Switched) -> Iterator[App]:
    app = App(store, closures=True)
    app.task(name="it")(lambda: None)
    yield app
    app.close()


@pytest.fixture
def page(app: App) -> Iterator[Page]:
    page = Page(app)
    yield page
    page.service.close()


def test_a_page_hears_of_each_change_once(app: App, page: Page) -> None:
    async def story() -> None:
        assert not await page.hears()
        assert not await page.hears()
        app.named("it").enqueue()
        assert await page.hears()
        assert not await page.hears()
        app.client.store.pause("default", True)
        assert await page.hears()

    run(story)


def test_a_page_is_never_old(page: Page) -> None:
    async def story() -> None:
        assert not await page.hears()
        assert not await page.hears(OLDEST - 1)
        assert await page.hears(1)
        assert not await page.hears(OLDEST - 1)

    run(story)


def test_a_page_hears_that_the_store_is_away_and_that_it_is_back(store: Switched, page: Page) -> None:
    async def story() -> None:
        assert not await page.hears()
        store.down()
        assert await page.hears()
        assert not await page.hears()
        store.up()
        assert await page.hears()
        assert not await page.hears()

    run(story)


def test_the_memory_of_workers_is_no_change(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = [PoolFigures("p", 2, 1, 5, 0, 1000)]

    def hosts(_: object) -> list[Host]:
        return [Host("h", "h", pools=list(figures))]

    monkeypatch.setattr("tarry.metrics.store_overview.list_hosts", hosts)

    async def story() -> None:
        assert not await page.hears()
        figures[:] = [PoolFigures("p", 2, 1, 5, 0, 2000)]
        assert not await page.hears()
        figures[:] = [PoolFigures("p", 2, 2, 5, 0, 2000)]
        assert await page.hears()

    run(story)


def test_pages_that_cost_too_much_wait_and_miss_nothing(app: App, page: Page) -> None:
    async def story() -> None:
        assert not await page.hears()
        page.budget.spend(2 + 10 * SHARE)
        app.named("it").enqueue()
        assert not await page.hears(5)
        assert not await page.hears(4)
        assert await page.hears(2)
        # It is told once.
        assert not await page.hears(1)

    run(story)


def test_the_budget_is_a_share_of_the_time_and_saves_little() -> None:
    clock = Hands()
    budget = RefreshBudget(clock)
    clock.now += 10_000
    spent = 0.0
    while budget.is_left:
        budget.spend(0.1)
        spent += 0.1
    assert spent < 3
    began = clock.now
    for _ in range(100):
        while not budget.is_left:
            clock.now += 0.1
        budget.spend(1.0)
    assert 100 / (clock.now - began) == pytest.approx(SHARE, rel=0.1)


def test_pages_that_refresh_themselves_spend_it_and_others_do_not(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[float] = []
    monkeypatch.setattr(RefreshBudget, "spend", lambda _, seconds: spent.append(seconds))

    async def story(browser: Visitor) -> None:
        await browser.get("/queues")
        assert spent == []
        await browser.get("/queues", **{"tarry-refresh": "true"})
        assert len(spent) == 1
        await browser.get("/jobs/nothing", **{"tarry-refresh": "true"})
        assert len(spent) == 2

    visit(app, story)
    assert all(0 < seconds < 10 for seconds in spent)


def test_a_real_stream(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_updates, "EVERY", 0.05)
    monkeypatch.setattr(event_streams, "TICK", 0.05)
    monkeypatch.setattr(page_updates, "TICK", 0.05)
    with served(app) as server, server.client.stream("GET", "/live") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        assert "content-security-policy" in stream.headers
        lines = stream.iter_lines()
        assert next(lines) == "retry: 1000"
        app.named("it").enqueue()
        assert next(line for line in lines if line.startswith("event:")) == "event: look"


def test_too_many_streams_are_refused(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "MOST_STREAMS", 0)

    async def story(browser: Visitor) -> httpx.Response:
        return await browser.client.get("/live", headers={"accept": "text/event-stream"})

    assert visit(app, story).status_code == 503


def test_a_stream_is_for_who_may_look(app: App, tokens: Tokens) -> None:
    tokens.add("shop", "put")

    async def story(browser: Visitor) -> None:
        assert (await browser.client.get("/live", headers={"accept": "text/event-stream"})).status_code == 401
        await browser.sign_in("reader-token")
        head = await asyncio.wait_for(browser.client.head("/live"), 5)
        assert head.status_code == 200

    visit(app, story, tokens)
