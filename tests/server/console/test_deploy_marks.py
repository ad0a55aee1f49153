"""Deploys on pages: a line in each chart, and the time since the last one."""

import re

import msgspec
import pytest

from tarry import App
from tarry.model.duration import SECOND
from tarry.server.console.charts.deploys import MOST_MARKS, deploy_marks
from tarry.server.console.charts.ranges import RANGES, shown_range
from tarry.store.queries.deploy_records import distinct_versions
from tarry.store.queries.deploys import PREFIX, Deploy
from tests.server.console.past import write_month
from tests.server.console.visiting import Tokens, Visitor, visit

STARTS = range(0, 240, 60)
NOW = 1_800_000_000 * SECOND


def deploy(at: float, version: str = "", generation: int = 1) -> Deploy:
    return Deploy("ahost|1.2:7:1:0", generation, round(at * SECOND), version, "0.1", 1)


def write(app: App, version: str, ago: int, generation: int) -> None:
    store = app.client.store
    mark = deploy(store.time() / SECOND - ago, version, generation)
    assert store.kv_cas(f"{PREFIX}{generation}", msgspec.json.encode(mark), None)


def test_deploys_of_one_point_are_one_mark() -> None:
    found = deploy_marks([deploy(200, "c"), deploy(90, "b"), deploy(75, "a"), deploy(70, "b"), deploy(-1)], STARTS)
    assert {place: (mark.at, [one.version for one in mark.versions]) for place, mark in found.items()} == {
        1: (1.17, ["b", "a"]),
        3: (3.33, ["c"]),
    }


def test_marks_are_bounded() -> None:
    many = range(0, 6000, 60)
    found = deploy_marks([deploy(at, f"v{at}") for at in reversed(many)], many)
    assert list(found) == list(range(100 - MOST_MARKS, 100))
    (mark,) = deploy_marks([deploy(at, f"v{at}") for at in range(50)][::-1], range(0, 60, 60)).values()
    assert ([one.version for one in mark.versions], mark.more) == (["v0", "v1", "v2"], 47)


def test_generations_without_a_version_are_told_apart() -> None:
    marks = deploy_marks([deploy(3, generation=3), deploy(2, generation=2)], STARTS)
    assert [one.generation for one in distinct_versions(marks[0].versions)] == [2, 3]


@pytest.mark.parametrize(
    ("age", "name", "span"),
    [(60, "deploy", "15m"), (900, "deploy", "1h"), (86400, "deploy", "7d"), (28 * 86400, "deploy", "30d")],
)
def test_the_time_since_a_deploy_is_as_fine_as_can_be(age: int, name: str, span: str) -> None:
    found = shown_range("deploy", NOW - age * SECOND, NOW)
    assert (found.name, found.span, found.since) == (name, RANGES[span], NOW // SECOND - age)  # type: ignore[index]
    assert found.names[-1] == "deploy"


@pytest.mark.parametrize("began", [0, NOW - 40 * 86400 * SECOND])
def test_without_a_deploy_that_a_chart_can_show_there_is_no_such_time(began: int) -> None:
    found = shown_range("deploy", began, NOW)
    assert (found.name, found.since, found.names) == ("30d", 0, tuple(RANGES))


def test_each_chart_has_a_line_for_each_deploy(app: App, tokens: Tokens) -> None:
    tokens.add("all", "read").add("mailer", "read", queues='["mail"]')
    store = app.client.store
    write_month(store, {("mail", "mail.send"): 7.0}, store.time() // SECOND, days=2)
    write(app, "1.0<b>", 3 * 3600, 1)
    write(app, "", 5 * 3600, 2)

    async def story(browser: Visitor) -> None:
        await browser.sign_in("all-token")
        for path in ("/", "/queues/mail", "/tasks/mail.send"):
            text = await browser.text(f"{path}?range=24h")
            charts = [part for part in text.split("<figure")[1:] if 'class="open"' in part]
            assert len(charts) >= 3
            for part in charts:
                titles = re.findall(r'<path class="deploy" d="M[\d.]+ 0V100"><title>([^<]*)</title>', part)
                assert [title.split(",")[0] for title in titles] == ["Deploy generation 2", "Deploy 1.0&lt;b&gt;"]
                assert part.count('<td class="deploy"></td>') == 22
        await browser.sign_in("mailer-token")
        text = await browser.text("/?range=24h")
        assert "chart-throughput" in text
        assert 'class="deploy"' not in text
        assert "range=deploy" not in text

    visit(app, story, tokens)


def test_a_line_says_who_and_that_it_went_back(app: App) -> None:
    store = app.client.store
    write_month(store, {("mail", "mail.send"): 7.0}, store.time() // SECOND, days=1)
    for generation, version in enumerate(("1", "2", "1")):
        mark = deploy(store.time() / SECOND - 7200 * (3 - generation), version, generation)
        mark = msgspec.structs.replace(mark, by="<i>ann")
        assert store.kv_cas(f"{PREFIX}{generation}", msgspec.json.encode(mark), None)

    async def story(browser: Visitor) -> None:
        text = await browser.text("/?range=24h")
        titles = re.findall("<title>Deploy ([^<]*)</title>", text[text.index("chart-throughput") :])[:3]
        assert [title.split(",")[0] for title in titles] == ["1", "2", "1 (back)"]
        assert all(title.endswith("&lt;i&gt;ann") for title in titles)

    visit(app, story)


def test_a_page_shows_the_time_since_the_last_deploy(app: App) -> None:
    store = app.client.store
    write_month(store, {("mail", "mail.send"): 600.0}, store.time() // SECOND, days=1)
    write(app, "1.0", 600, 1)

    async def story(browser: Visitor) -> None:
        text = await browser.text("/?range=deploy")
        assert 'href="/?range=deploy" aria-current="true"' in text
        assert '<th scope="row">Since the last deploy</th>' in text
        figure = text[text.index('id="chart-throughput"') :]
        assert len(re.findall('<tr><th scope="row">', figure[: figure.index("</figure>")])) in (11, 12)
        assert 0 < figures(text) < figures(await browser.text("/?range=15m"))

    visit(app, story)


def figures(text: str) -> int:
    """How many jobs were put in the time shown."""
    return int(re.findall(r'<table class="totals">.*?<td class="n">([\d,]+)</td>', text, re.DOTALL)[0].replace(",", ""))


def test_errors_since_the_last_deploy_are_a_link_away(app: App) -> None:
    async def story(browser: Visitor) -> None:
        text = await browser.text("/errors?queue=mail&new_since=deploy")
        assert 'href="/errors?queue=mail&amp;order=last&amp;new_since=deploy" aria-current="true"' in text
        assert 'href="/errors?queue=mail&amp;order=last">Any time' in text

    visit(app, story)
