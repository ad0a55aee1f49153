"""The overview: equal concerns are one line, the worst first, and can be put off."""

import re

import msgspec
import pytest

from tarry import App
from tarry.model.job import Job, State
from tarry.server.console.concerns.concern_groups import group_concerns
from tarry.server.console.concerns.concerns import ORDER, RED, Concern
from tarry.server.console.put_off import COOKIE, MOST, put_off, read_put_off
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.deploys import PREFIX, Deploy
from tarry.store.rules import ids
from tarry.store.rules.history.error_groups import ErrorGroup, encode_group, group_place
from tests.server.console.hostile import TEXT
from tests.server.console.visiting import Tokens, Visitor, visit

LINE = re.compile(r'<li class="(\w+)">\s*(?:<span class="line"[^>]*>|<details class="line"><summary>)(.*?)<', re.DOTALL)
MARK = re.compile(r'name="mark" value="([0-9a-f]+-\d+)"')


def app_with(dead: int = 1, queues: int = 32) -> App:
    app = App(MemoryStore(), closures=True)
    jobs = [Job(ids.uuid7(), "t", b"[]", f"queue-{n}") for n in range(queues)]
    jobs += [Job(ids.uuid7(), "t", b"[]", "mail", state=State.DEAD) for _ in range(dead)]
    app.client.store.insert(jobs)
    return app


def lines(page: str) -> list[tuple[str, str]]:
    """Without what is said of a store in memory."""
    return [(kind, text.strip()) for kind, text in LINE.findall(page) if kind != "advice"]


def kinds(page: str) -> list[str]:
    return [kind for kind, _ in lines(page)]


def test_equal_concerns_are_one_line_below_the_numbers_and_red_is_first() -> None:
    app = app_with()
    page = visit(app, lambda browser: browser.text("/"))
    assert lines(page) == [
        ("red", "No master is known to run; 32 jobs wait."),
        ("red", "mail: 1 job is dead."),
        ("unserved", "32 queues have no pool that runs; jobs that wait: 32."),
    ]
    assert page.index('id="totals"') < page.index('id="attention"') < page.index('class="charts"')
    # The line opens to all of them.
    assert page.count("no pool that runs serves it") == 32
    app.close()


def test_what_is_put_off_comes_back_when_it_is_told_to_or_gets_worse() -> None:
    app = app_with(dead=3)

    async def put_two_off(browser: Visitor) -> str:
        for mark in MARK.findall(await browser.text("/"))[:2]:
            done = await browser.send("/put-off", {"mark": mark, "days": "1"})
            assert (done.status_code, done.headers["location"]) == (303, "/")
        page = await browser.text("/")
        assert kinds(page) == ["unserved"]
        assert "2 lines are put off." in page
        return str(browser.client.cookies[COOKIE])

    cookie = visit(app, put_two_off)

    async def look(browser: Visitor) -> str:
        browser.client.cookies.set(COOKIE, cookie, domain="tarry.test")
        return await browser.text("/")

    # So few more are the same; ten times as many are not.
    for count, is_back in ((5, False), (5, True)):
        app.client.store.insert([Job(ids.uuid7(), "t", b"[]", "mail", state=State.DEAD) for _ in range(count)])
        assert ("jobs are dead" in visit(app, look)) is is_back

    async def show_all(browser: Visitor) -> str:
        await look(browser)
        await browser.send("/put-off", {})
        return await browser.text("/")

    assert kinds(visit(app, show_all)) == ["red", "red", "unserved"]
    app.close()


@pytest.mark.parametrize(
    "form",
    [
        {"mark": "x", "days": "1"},
        {"mark": "0" * 12 + "-1", "days": "3"},
        {"mark": TEXT, "days": "1"},
        {"mark": "0" * 12 + "-1"},
    ],
)
def test_nothing_else_is_put_off(form: dict[str, str]) -> None:
    app = app_with()

    async def story(browser: Visitor) -> int:
        status = (await browser.send("/put-off", form)).status_code
        assert COOKIE not in browser.client.cookies
        assert (
            await browser.send("/put-off", {"mark": "0" * 12 + "-1", "days": "1"}, "https://evil")
        ).status_code == 403
        return status

    assert visit(app, story) == 422
    app.close()


def test_what_is_put_off_is_bounded_and_ends() -> None:
    cookie: str | None = None
    for number in range(MOST + 10):
        cookie = put_off(cookie, f"{number:012x}-2", 1, number)
    known = read_put_off(cookie, MOST)
    assert len(known) == MOST
    assert min(known) == f"{10:012x}"
    assert read_put_off(cookie, 2 * 86400) == {}
    # Nobody puts anything off for years, whatever the cookie says.
    assert read_put_off(f"{0:012x}-1-{10**9}", 0) == {}
    assert read_put_off(("x" * 50 + ".") * 10_000 + TEXT, 0) == {}


def test_groups_of_every_kind_have_a_sentence_a_page_and_a_mark() -> None:
    found = [Concern(kind, f"{TEXT} {n}", 3, "/here") for kind in ORDER for n in range(2)]
    groups = group_concerns(found)
    assert [group.kind for group in groups] == [*ORDER]
    assert [group.is_red for group in groups] == [kind in RED for kind in ORDER]
    assert len({group.name for group in groups}) == len(ORDER)
    assert all(group.where.startswith("/") and group.mark for group in groups)
    other = group_concerns([*found[:1], Concern(ORDER[0], "another", 3, "/here")])
    assert other[0].name != groups[0].name


@pytest.mark.parametrize("who", ["reader", "mailer"])
@pytest.mark.parametrize("has_deploy", [True, False])
def test_an_error_that_is_new_since_the_last_deploy_is_told(tokens: Tokens, who: str, has_deploy: bool) -> None:
    """Also to those who may see some queues, and are told of no deploy."""
    tokens.add("mailer", "read", queues='["mail"]')
    app = app_with(dead=0, queues=0)
    store, now = app.client.store, app.client.store.time()
    if has_deploy:
        mark = Deploy("ahost|1.2:7:100:0", at=now - 9, version="1.1", ticks=100)
        assert store.kv_cas(f"{PREFIX}{mark.instance}:1", msgspec.json.encode(mark), None)
    for place, first, ticks in (
        (group_place("mail", "0" * 16), now, 200),
        (group_place("mail", "1" * 16), now - 99, 50),
    ):
        group = encode_group(ErrorGroup("ValueError", place.task, "", 2, first, now, f"ahost|1.2:9:{ticks}:1"))
        assert store.history.change_errors(lambda _: {place: group})  # noqa: B023 - called here

    async def story(browser: Visitor) -> list[tuple[str, str]]:
        await browser.sign_in(f"{who}-token")
        return lines(await browser.text("/"))

    said = ("red", f"New since the last deploy, 2 times: ValueError: {'0' * 16}")
    assert visit(app, story, tokens) == ([said] if has_deploy else [])
    app.close()
