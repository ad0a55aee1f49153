"""Open pages follow what happens, leave alone what a person is at, and say when they cannot follow."""

import os
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.cli.project import until
from tests.server.console.browser.place import MakePerson, Person, Place

STREAMS = """
const Real = EventSource;
window.streams = [];
window.EventSource = class extends Real { constructor(url) { super(url); window.streams.push(this); } };
"""
"""Keeps the streams of the page where a test can look at them."""


def is_live(page: Page) -> None:
    expect(page.locator("#live")).to_have_text("Live")


def mark(page: Page) -> None:
    """Something that does not outlive a reload of the page."""
    page.evaluate("window.mark = 1")


def is_same(page: Page) -> bool:
    return bool(page.evaluate("window.mark === 1"))


def test_a_page_follows_a_job_without_a_reload(ann: Person) -> None:
    job = ann.place.add("wait", "a gate")
    ann.place.becomes(job, "running")
    page = ann.open(f"/jobs/{job}")
    is_live(page)
    mark(page)
    ann.place.write("a gate", "")
    expect(page.locator("main")).to_contain_text("through the gate")
    assert is_same(page)


def test_a_list_follows_new_jobs(ann: Person) -> None:
    page = ann.open("/jobs?queue=followed")
    is_live(page)
    mark(page)
    ann.place.add("send", "ann@example.org", queue="followed", delay=3600)
    expect(page.locator("tbody tr")).to_have_count(1)
    assert is_same(page)


def test_what_a_person_has_opened_stays_and_the_news_come_after_it(ann: Person) -> None:
    page = ann.open("/queues")
    ann.place.add("send", "ann@example.org", queue="opened-1", delay=3600)
    expect(page.get_by_role("link", name="opened-1")).to_be_visible(timeout=15_000)
    row = page.get_by_role("row").filter(has_text="opened-1")
    row.get_by_role("button", name="Pause").focus()
    refreshed: list[str] = []
    page.on("request", lambda request: refreshed.append(request.url) if request.resource_type == "fetch" else None)
    ann.place.add("send", "ann@example.org", queue="opened-2", delay=3600)
    # A stream of our own says when the page has heard of it.
    page.evaluate(
        "url => new Promise(resolve => { const one = new EventSource(url);"
        " one.addEventListener('look', () => { one.close(); resolve(); }); })",
        f"{ann.place.url}/live",
    )
    assert refreshed == []
    expect(row.get_by_role("button", name="Pause")).to_be_focused()
    row.get_by_role("button", name="Pause").blur()
    expect(page.get_by_role("link", name="opened-2")).to_be_visible(timeout=15_000)


def hide(page: Page, is_hidden: bool) -> None:
    """As if the person looked at another tab; without a window, none is ever hidden."""
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        is_hidden,
    )


def test_a_hidden_page_hears_nothing_and_catches_up(make_person: MakePerson) -> None:
    person = make_person()
    person.context.add_init_script(STREAMS)
    page = person.open("/jobs?queue=hidden")
    is_live(page)
    hide(page, True)
    # 2: closed.
    assert page.evaluate("window.streams.map(one => one.readyState)") == [2]
    person.place.add("send", "ann@example.org", queue="hidden", delay=3600)
    assert page.locator("tbody tr").count() == 0
    hide(page, False)
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.evaluate("window.streams.map(one => one.readyState)") == [2, 1]


def test_a_session_that_is_over_leads_to_the_sign_in(make_person: MakePerson) -> None:
    person = make_person()
    page = person.open("/queues")
    is_live(page)
    person.context.clear_cookies()
    hide(page, True)
    hide(page, False)
    page.wait_for_url("**/sign-in?next=%2Fqueues")
    # The stream and the page itself were refused.
    assert 1 <= person.passing <= 6


@pytest.fixture
def server_away(place: Place) -> Iterator[int]:
    (pid,) = place.pids("server")
    yield pid
    until(lambda: len(place.pids("server")) == 1)


def test_a_server_that_dies_is_told_and_the_page_goes_on_with_the_next(ann: Person, server_away: int) -> None:
    page = ann.open("/jobs?queue=outlived")
    is_live(page)
    mark(page)
    os.kill(server_away, signal.SIGSTOP)
    os.kill(server_away, signal.SIGKILL)
    expect(page.locator("#live")).to_have_text("Not live: the server cannot be reached")
    expect(page.locator("#live")).to_have_class("off")
    until(lambda: ann.place.pids("server") not in ([], [server_away]))
    ann.place.add("send", "ann@example.org", queue="outlived", delay=3600)
    is_live(page)
    expect(page.locator("tbody tr")).to_have_count(1)
    assert is_same(page)
    # How the browser itself tells of requests without an answer.
    ann.complaints = [text for text in ann.complaints if "net::ERR_" not in text]


def test_a_page_says_that_the_store_is_away_and_recovers(make_person: MakePerson) -> None:
    person = make_person()
    page = person.open("/queues")
    is_live(page)
    mark(page)
    page.route("**/queues", lambda route: route.fulfill(status=503, body="away"))
    hide(page, True)
    hide(page, False)
    expect(page.locator("#live")).to_have_text("Not live: the page cannot be refreshed now")
    # What was there is still there.
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    assert page.locator("[data-refresh]").count() == 1
    page.unroute("**/queues")
    hide(page, True)
    hide(page, False)
    is_live(page)
    assert is_same(page)
    assert person.passing == 1
