"""The page of the keys of a limit: what each has of its own, and the forms that change it."""

import re
from typing import Any
from urllib.parse import urlencode

import pytest

from tarry import App
from tarry.client.limits.key_numbers import task_bounds
from tarry.model.limit import KeyLimit, Limit
from tarry.store.rules import key_limits
from tests.server.console.visiting import Tokens, Visitor, visit

PAGE = "/limits/each:bill/keys"
HOSTILE = "<script>a/b=c&d"


@pytest.fixture(autouse=True)
def bill(app: App) -> None:
    @app.task(name="bill", limit_by=lambda account: account)
    def bill(account: str) -> None: ...


@pytest.fixture
def limited(app: App) -> App:
    app.client.store.limit("each:bill", Limit(2))
    app.client.store.limit_key("bill", "ann", KeyLimit(7, is_paused=True))
    app.client.store.limit_key("bill", HOSTILE, KeyLimit(3))
    return app


def test_a_key_is_paused_resumed_set_and_reset(limited: App) -> None:
    async def story(browser: Visitor) -> list[str]:
        pages = [await browser.text(PAGE)]
        for act, form in (
            ("each:bill=ann/resume", {}),
            ("each:bill=bob/pause", {}),
            ("each:bill=bob/set", {"at_once": "5", "weight": "250", "max_waiting": "1234"}),
            ("each:bill=ann/delete", {}),
        ):
            answer = await browser.act(f"/limits/{act}", {**form, "next": PAGE}, PAGE)
            assert answer.status_code == 303, answer.text
            pages.append(await browser.text(PAGE))
        return pages

    first, resumed, *_, last = visit(limited, story)
    assert ">paused<" in first
    assert "<td>ann" in first
    assert "&lt;script&gt;a/b=c&amp;d" in first
    assert "<script>a/b" not in first
    assert ">paused<" not in resumed
    assert key_limits.read_key_limits(limited.client.store, "bill") == {
        "bob": KeyLimit(5, is_paused=True, weight=250),
        HOSTILE: KeyLimit(3),
    }
    assert "<td>ann" not in last
    assert '<td class="n">250</td>' in last
    assert '<td class="n">1,234</td>' in last
    assert 'name="max_waiting" inputmode="numeric" size="7" value="1234"' in last
    assert task_bounds(limited.client.store, "bill").keys == {"bob": 1234}
    assert 'name="weight" inputmode="numeric" size="5" value="250"' in last


@pytest.mark.parametrize(
    "key", ["ann/pause", "ann/resume", "ann/delete", "ann/set", "a/../b", "ann/../../ann", "a//", "a=b", " "]
)
def test_the_forms_of_a_key_are_about_this_key(app: App, key: str) -> None:
    """Its name may end as the path of an act does, and browsers take dots out of a path."""
    app.client.store.limit_key("bill", "ann", KeyLimit(7))
    app.client.store.limit_key("bill", key, KeyLimit(3))

    async def story(browser: Visitor) -> list[Any]:
        shown = await browser.text(f"{PAGE}?{urlencode({'key': key})}")
        pause, change, reset = re.findall(r'method="post" action="(/limits/[^"]+)"', shown)[:3]
        found = []
        for path, form in ((pause, {}), (change, {"at_once": "5"}), (reset, {})):
            answer = await browser.act(path, {**form, "next": PAGE}, PAGE)
            assert answer.status_code == 303, answer.text
            found.append(key_limits.read_key_limits(app.client.store, "bill"))
        return found

    own = {"ann": KeyLimit(7)}
    assert visit(app, story) == [
        own | {key: KeyLimit(3, is_paused=True)},
        own | {key: KeyLimit(5, is_paused=True)},
        own,
    ]


def test_any_key_is_shown_by_its_name(limited: App) -> None:
    async def story(browser: Visitor) -> tuple[str, str, int]:
        found = await browser.text(f"{PAGE}?key=new")
        links = await browser.text("/limits")
        return found, links, (await browser.get("/limits/queue:mail/keys")).status_code

    found, links, wrong = visit(limited, story)
    assert "<td>new" in found
    assert f'href="{PAGE.replace(":", "%3A")}"' in links
    assert wrong == 422


def test_many_keys_come_page_by_page(limited: App) -> None:
    for number in range(150):
        limited.client.store.limit_key("bill", f"t{number:03}", KeyLimit(1))

    async def story(browser: Visitor) -> tuple[str, str]:
        first = await browser.text(PAGE)
        following = first.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
        return first, await browser.text(following.replace("&amp;", "&"))

    first, second = visit(limited, story)
    assert first.count("<td>t") + second.count("<td>t") == 150
    assert 'rel="next"' not in second


def test_who_only_looks_has_no_forms(limited: App, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> tuple[str, int]:
        await browser.sign_in("reader-token")
        page = await browser.text(PAGE)
        return page, (await browser.send("/limits/each:bill=ann/resume", {"next": PAGE})).status_code

    page, refused = visit(limited, story, tokens)
    assert 'name="csrf"' not in page.partition("<main")[2]
    assert refused == 403
    assert key_limits.read_key_limits(limited.client.store, "bill")["ann"].is_paused
