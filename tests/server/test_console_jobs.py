"""The list of jobs in the console: links by state with counts, filters, pages."""

import re
from html import unescape

import pytest

from tarry import App
from tarry.store.memory.store import MemoryStore
from tests.server.http.calling import page, request


@pytest.fixture
def app() -> App:
    app = App(MemoryStore(), closures=True)

    @app.task(name="mail", queue="mails")
    def mail(to: str) -> None: ...

    for number in range(3):
        mail.enqueue(f"ann{number}")
    mail.using(delay=60, queue="later").enqueue("bob")
    return app


def counts(text: str) -> dict[str, int]:
    return {name: int(count) for name, count in re.findall(r"<span>(\w+)</span> <b>(\d+)</b>", text)}


def test_states_are_counted_within_the_queue_and_the_task(app: App) -> None:
    assert counts(page(app, "/jobs")) == {
        "scheduled": 1,
        "ready": 3,
        "running": 0,
        "done": 0,
        "dead": 0,
        "cancelled": 0,
        "blocked": 0,
    }
    assert counts(page(app, "/jobs?queue=later"))["ready"] == 0
    assert counts(page(app, "/jobs?task=other"))["ready"] == 0
    # The links keep the other filters.
    assert "/jobs?queue=later&amp;state=ready" in page(app, "/jobs?queue=later") or (
        "/jobs?state=ready&amp;queue=later" in page(app, "/jobs?queue=later")
    )


def test_a_search_tells_how_many_jobs_it_looked_at(app: App) -> None:
    text = page(app, "/jobs?text=ann1&state=ready")
    assert "Looked at 3 jobs." in text
    assert "mails" in text
    assert "No job matches." in page(app, "/jobs?text=carol")


def test_pages_keep_the_filters(app: App) -> None:
    text = page(app, "/jobs?queue=mails&limit=2")
    found = re.search(r'href="([^"]*cursor=[^"]*)" rel="next"', text)
    assert found is not None
    following = page(app, found[1].replace("&amp;", "&"))
    assert 'rel="next"' not in following
    assert "First page" in following


def test_no_operation_is_offered_that_would_change_more_than_what_is_shown(app: App) -> None:
    for filter, word in (("text=ann", "arg:ann"), ("created_since=1h", "created_since:1h"), ("task=m*", "task:m*")):
        shown = page(app, f"/jobs?queue=mails&{filter}")
        (line,) = re.findall(r'type="hidden" name="q" value="([^"]*)"', shown)
        assert sorted(line.split()) == sorted(["queue:mails", word])
    # Counted from now, and not from when the operation begins.
    (line,) = re.findall(r'type="hidden" name="q" value="([^"]*)"', page(app, "/jobs?q=since:1h"))
    assert re.fullmatch(r"since:20\d\d-\d\d-\d\dT[\d:.]+Z", line)
    job = next(iter(app.jobs())).id
    for single in ("id=deadbeef", f"q=parent:{job}"):
        assert "Change all that match" not in page(app, f"/jobs?queue=mails&{single}")


def box(text: str) -> str:
    """What stands in the box of the line."""
    (line,) = re.findall(r'<input type="search" name="q" value="([^"]*)"', text)
    return unescape(line)


def test_the_box_shows_the_line_of_all_filters(app: App) -> None:
    assert box(page(app, "/jobs")) == ""
    assert box(page(app, "/jobs?queue=mails&state=ready&text=a%20b")) == 'state:ready queue:mails arg:"a b"'
    text = page(app, "/jobs?q=arg:ann1+queue:mails+state:ready")
    assert box(text) == "state:ready queue:mails arg:ann1"
    assert "Looked at 3 jobs." in text
    assert counts(text)["ready"] == 3
    assert "queue=mails" in text, "the links to other states keep it"


def test_a_line_that_cannot_be_read_stays_and_says_why(app: App) -> None:
    text = page(app, "/jobs?q=sate:dead+queue:mails")
    assert box(text) == "sate:dead queue:mails"
    assert "sate:dead: no such word; did you mean state?" in unescape(text)
    assert "Change all that match" not in text
    assert "No job matches." not in text
    text = page(app, "/jobs?q=parent:01a1fdd3-717b-8374-861e-7ba600000000")
    assert "no job 01a1fdd3" in text


def test_the_field_at_the_top_takes_a_line_too(app: App) -> None:
    for text, where in (
        ("state:ready arg:ann1", "/jobs?q=state%3Aready+arg%3Aann1"),
        ("order:7", "/jobs?key=order%3A7"),
        # Not a word of it is left out: it would find more than it says.
        (f"state:dead arg:{'x' * 200} customer:77", f"/jobs?q=state%3Adead+arg%3A{'x' * 200}+customer%3A77"),
    ):
        got = request(app, "GET", "/find", params={"text": text})
        assert (got.status_code, got.headers["location"]) == (303, where)


def test_a_page_has_a_hundred_jobs_at_most_whatever_is_asked(app: App) -> None:
    app.named("mail").using(queue="long").enqueue_many([(f"person{number}@example.org",) for number in range(120)])
    text = page(app, "/jobs?queue=long&limit=1000")
    assert len(set(re.findall(r'href="/jobs/([0-9a-f-]{36})"', text))) == 100
    (following,) = re.findall(r'href="([^"]+)" rel="next"', text)
    rest = page(app, unescape(following))
    assert "queue=long" in following
    assert len(set(re.findall(r'href="/jobs/([0-9a-f-]{36})"', rest))) == 20
