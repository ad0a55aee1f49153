"""Approvals: what is approved, and in the order in which people count."""

import re
from collections.abc import Iterator

import pytest

from tarry import App, approve
from tarry.client.flows.approvals import ApprovalRecord
from tarry.server.console.views import flows as flows_page
from tarry.server.console.views.arguments import MOST_VALUE
from tarry.server.console.views.flows import natural_order
from tarry.store.memory.store import MemoryStore
from tests.server.console.visiting import Visitor, visit

KEYS = re.compile(r"<b>[^<]*</b> <code>([^<]+)</code>")


@pytest.fixture
def app() -> Iterator[App]:
    app = App(MemoryStore(), closures=True, retry=None)

    @app.task(name="refund", queue="bank")
    def refund(order: str, cents: int, password: str = "") -> bool:
        return bool(approve("Refund?", key=order, timeout="2d"))

    yield app
    app.close()


def test_it_shows_what_is_approved_without_secrets(app: App) -> None:
    app.named("refund").enqueue("7", 4200, "hush")
    app.named("refund").enqueue("<b>" * 160, 1)
    app.drain()
    page = visit(app, lambda browser: browser.text("/approvals"))
    assert "{&#34;order&#34;: &#34;7&#34;, &#34;cents&#34;: 4200, &#34;password&#34;: &#34;••••••&#34;}" in page
    assert "hush" not in page
    long = next(one for one in re.findall(r'<p class="args"><code>(.*?)</code>', page) if "&lt;b&gt;" in one)
    assert long.count("&lt;b&gt;") < MOST_VALUE


@pytest.mark.parametrize("most_sorted", [1000, 5])
def test_2_comes_before_10_on_each_page(app: App, monkeypatch: pytest.MonkeyPatch, most_sorted: int) -> None:
    monkeypatch.setattr(flows_page, "MOST_SHOWN", 4)
    monkeypatch.setattr(flows_page, "MOST_SORTED", most_sorted)
    for number in range(1, 12):
        app.named("refund").enqueue(f"order {number}", number)
    app.drain()

    async def story(browser: Visitor) -> list[list[str]]:
        pages, where = [], "/approvals?question=Refund%3F"
        while where:
            page = await browser.text(where)
            pages.append(KEYS.findall(page))
            following = re.search(r'href="([^"]*)" rel="next"', page)
            where = following[1].replace("&amp;", "&") if following else ""
        return pages

    pages = visit(app, story)
    every = [f"order {number}" for number in range(1, 12)]
    assert [len(page) for page in pages] == [4, 4, 3]
    if most_sorted > len(every):
        assert [key for page in pages for key in page] == every
    # Of more than can be read at once, each page by itself; none is left out.
    assert sorted(key for page in pages for key in page) == sorted(every)
    assert all(page == sorted(page, key=every.index) for page in pages)


def test_the_order_of_any_keys() -> None:
    keys = ["", "0", "02", "2", "10", "9" * 5000, "a", "a2", "a10", "a10b", "b1", "²"]
    records = [ApprovalRecord(key, "q", "", "", "", None, since, None) for since, key in enumerate(keys)]
    backwards = records[::-1]
    assert sorted(backwards, key=natural_order) == records
