"""The list of jobs and what finds them: order, errors, selection, changes of all that match, the search field."""

import re
import time
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tarry import App
from tarry.client.operations.operation import JobFilter
from tarry.model.change import DEAD, DONE, FAILED, PUT
from tarry.model.duration import SECOND
from tarry.model.history.error_kind import error_kind
from tarry.model.job import Job, State
from tarry.server.console.views.jobs import MOST_NAMES, JobsPageQuery
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tarry.store.rules.base import Query
from tarry.store.rules.history.sums import DAYS, Place, Sums
from tests.server.console.past import write_sums
from tests.server.console.visiting import Tokens, Visitor, visit

ROW = re.compile(r'<a class="id" href="/jobs/([0-9a-f-]{36})"')
FILTERS: dict[str, str] = {
    "queue": "mail", "task": "mail.send", "key": "ann", "older": "1us", "since": "1h", "created_since": "1h",
    "created_until": "2100-01-01T00:00Z",
    "text": "ann@", "state": "ready", "label": "customer=7", "until": "2100-01-01",
    "q": 'task:mail.* arg:"ann@" customer:7 since:1h',
}  # fmt: skip
"""A value for each filter of the list that an operation has, too, which one of the three jobs matches."""


@pytest.fixture
def app() -> Iterator[App]:
    app = App(MemoryStore(), closures=True, retry=None)

    @app.task(name="mail.send", queue="mail")
    def send(address: str, password: str = "") -> None:
        raise LookupError(f"no {address}\nsecond line")

    @app.task(name="mail.fade", queue="mail")
    def fade() -> None: ...

    yield app
    app.close()


def put(app: App, *addresses: str, **options: Any) -> list[str]:
    return [app.named("mail.send").using(**options).enqueue(one).id for one in addresses]


def state_of(app: App, id: str) -> State:
    found = app.client.store.get([ids.parse(id)])[0]
    assert found is not None
    return found.state


def test_the_newest_are_first_and_the_link_turns_them_round(app: App) -> None:
    jobs = put(app, "a@b", "c@d", "e@f")

    async def story(browser: Visitor) -> tuple[list[str], list[str], list[str]]:
        newest, oldest = await browser.text("/jobs?queue=mail"), await browser.text("/jobs?queue=mail&order=oldest")
        assert 'href="/jobs?queue=mail&amp;order=oldest"' in newest
        assert 'href="/jobs?queue=mail"' in oldest
        pages, where = list[str](), "/jobs?limit=1"
        while where:
            page = await browser.text(where)
            pages += ROW.findall(page)
            following = re.search(r'href="([^"]*)" rel="next"', page)
            where = following[1].replace("&amp;", "&") + "&limit=1" if following else ""
        return ROW.findall(newest), ROW.findall(oldest), pages

    assert visit(app, story) == (jobs[::-1], jobs, jobs[::-1])


def test_the_list_of_dead_jobs_says_why(app: App) -> None:
    put(app, "<b>ann</b>")
    app.drain()
    page = visit(app, lambda browser: browser.text("/jobs?state=dead"))
    assert '<td class="error">LookupError: no &lt;b&gt;ann&lt;/b&gt;</td>' in page
    assert "second line" not in page
    # What ended has no time to come; it was put at some.
    assert "<th>Due</th>" not in page
    assert "<th>Created</th>" in page


def test_selected_jobs_change_and_no_others(app: App, tokens: Tokens) -> None:
    one, two, three = put(app, "a", "b", "c")
    (foreign,) = put(app, "d", queue="other")
    tokens.add("ann", "read", "operate", queues='["mail"]')

    async def story(browser: Visitor) -> str:
        await browser.sign_in("ann-token")
        form = {"act": "cancel", "id:list": [one, two, foreign, str(ids.text(ids.uuid7()))], "reason": "of no use"}
        done = await browser.act("/jobs/selected", {**form, "next": "/jobs?queue=mail"}, "/jobs")
        assert (done.status_code, done.headers["location"]) == (303, "/jobs?queue=mail")
        told = await browser.text("/jobs")
        single = await browser.act("/jobs/selected", {"act": "delete", "id:list": one}, "/jobs")
        assert single.status_code == 303
        for wrong in (
            {"act": "move", "id:list": one},
            {"act": "cancel", "id:list": "x"},
            {"act": "cancel", "id:list": [one] * 101},
        ):
            assert (await browser.act("/jobs/selected", wrong, "/jobs")).status_code == 422
        assert (await browser.act("/jobs/selected", {"act": "cancel"}, "/jobs")).status_code == 303
        return told

    told = visit(app, story, tokens)
    assert "2 of 4 selected jobs are changed." in told
    states = [job and job.state for job in app.client.store.get([ids.parse(id) for id in (one, two, three, foreign)])]
    assert states == [None, State.CANCELLED, State.READY, State.READY]


def test_only_who_may_operate_can_select(app: App, tokens: Tokens) -> None:
    (one,) = put(app, "a")

    assert 'name="id:list"' in visit(app, lambda browser: browser.text("/jobs"))

    async def story(browser: Visitor) -> tuple[str, int]:
        await browser.sign_in("reader-token")
        page = await browser.text("/jobs")
        return page, (await browser.send("/jobs/selected", {"act": "delete", "id:list": one})).status_code

    page, status = visit(app, story, tokens)
    assert 'type="checkbox"' not in page
    assert status == 403
    assert state_of(app, one) is State.READY


def test_every_filter_of_the_list_is_one_of_an_operation_or_the_page_says_so(app: App) -> None:
    own = {"limit", "cursor", "order", "id", "parent"}
    several = {"state": "states", "label": "labels"}
    names = JobsPageQuery.__struct_fields__
    assert {several.get(name, name) for name in names if name not in own} - {"q"} <= set(JobFilter.__struct_fields__)
    # A job with an error has ended, and nothing is cancelled then; those of flows are changed by them.
    assert set(FILTERS) == set(names) - own - {"error", "error_text", "flow", "node"}


def test_the_jobs_of_an_error_are_listed_and_can_be_changed(app: App) -> None:
    (failing,) = put(app, "ann@example.org")
    app.drain()
    put(app, "bob@example.org")
    (job,) = app.client.store.find(Query((State.DEAD,)))
    fingerprint = error_kind(job.task, job.note).fingerprint

    async def story(browser: Visitor) -> str:
        return await browser.text(f"/jobs?error={fingerprint}")

    page = visit(app, story)
    assert ROW.findall(page) == [failing]
    assert f'name="q" value="error:{fingerprint}"' in page


@pytest.mark.parametrize("name", FILTERS)
def test_a_change_of_all_that_match_is_for_those_that_the_list_has(app: App, name: str) -> None:
    put(app, "bob@example.org", queue="other")
    (mine,) = put(app, "ann@example.org", key="ann", labels={"customer": "7"})
    app.named("mail.fade").using(queue="third").enqueue()
    wanted = f"/jobs?{name}={FILTERS[name]}"

    async def story(browser: Visitor) -> tuple[set[str], str]:
        page = await browser.text(wanted)
        form = re.search(r'action="/operations">(.*?)</form>', page, re.DOTALL)
        assert form
        fields = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form[1]))
        done = await browser.send("/operations", {**fields, "act": "cancel"})
        assert done.status_code == 303, done.text
        where = urlsplit(done.headers["location"]).path
        until = time.monotonic() + 10
        while "<dd>done</dd>" not in (await browser.text(where)).replace("\n", ""):
            assert time.monotonic() < until
        return set(ROW.findall(page)), where

    listed, _ = visit(app, story)
    cancelled = {ids.text(job.id) for job in app.client.store.find(Query((State.CANCELLED,)))}
    assert mine in cancelled
    assert cancelled == listed


def test_a_job_is_found_by_its_labels_and_leads_to_others_that_have_them(app: App) -> None:
    (mine,) = put(app, "a", labels={"customer": "7&<b>", "plan": "gold"})
    (other,) = put(app, "a", labels={"plan": "gold"})
    put(app, "a")

    async def story(browser: Visitor) -> tuple[str, list[list[str]]]:
        page = await browser.text(f"/jobs/{mine}")
        links = re.findall(r'href="(/jobs\?label=[^"]+)"', page)
        both = "/jobs?label=plan%3Dgold&label=customer%3D7%26%3Cb%3E&label="
        return page, [ROW.findall(await browser.text(where)) for where in (*links, both)]

    page, found = visit(app, story)
    assert "customer=7&amp;&lt;b&gt;</a>, " in page
    assert found == [[mine], [other, mine], [mine]]


def test_an_id_keeps_a_change_of_all_that_match_away(app: App) -> None:
    (one,) = put(app, "a")
    page = visit(app, lambda browser: browser.text(f"/jobs?id={one[-8:]}"))
    assert ROW.findall(page) == [one]
    assert 'action="/operations"' not in page
    assert "bulk actions cannot use it" in page


def test_names_are_suggested_to_whom_they_concern(app: App, tokens: Tokens) -> None:
    put(app, "a")
    put(app, "b", queue="secret")
    app.client.store.insert([Job(ids.uuid7(), f"t{n:03}", b"[]", "mail") for n in range(MOST_NAMES + 50)])
    tokens.add("ann", "read", queues='["mail"]')

    async def story(browser: Visitor) -> str:
        await browser.sign_in("ann-token")
        return await browser.text("/jobs")

    page = visit(app, story, tokens)
    assert '<option value="mail"></option>' in page
    assert "secret" not in page
    assert page.count("<option value=") <= 2 * MOST_NAMES


@pytest.mark.parametrize("length", [8, 12, 20, 32])
def test_a_job_is_found_by_the_begin_and_the_end_of_its_id(app: App, length: int) -> None:
    put(app, "a")
    old = ids.parse("01890000-0000-7abc-8def-0123456789ab")
    app.client.store.insert([Job(old, "mail.send", b"[]", "mail")])
    digits = old.hex()

    async def story(browser: Visitor) -> list[list[str]]:
        found = []
        for part in (digits[:length], digits[-length:], ids.text(old)[:length], digits[-length:].upper()):
            where = (await browser.get(f"/find?text=+{part}+")).headers["location"]
            if where.startswith("/jobs?"):
                assert parse_qs(urlsplit(where).query) in ({"id": [part]}, {"key": [part]})
            found.append(ROW.findall(await browser.text(f"/jobs?id={part}")))
        return found

    assert visit(app, story) == [[ids.text(old)]] * 4


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "/jobs"), ("mail.send", "/tasks/mail.send"), ("MAIL.s", "/tasks?search=MAIL.s"),
        ("gone.task", "/jobs?task=gone.task"),
        ("order 7", "/jobs?key=order+7"), ("fade", "/tasks?search=fade"), ("deadbeef", "/jobs?id=deadbeef"),
        ("12345678", "/jobs?key=12345678"), ("019ac3f0-7b", "/jobs?id=019ac3f0-7b"),
        ("x" * 5000, f"/jobs?key={'x' * 200}"),
        ("<b>", "/jobs?key=%3Cb%3E"), ("//evil.example", "/jobs?key=%2F%2Fevil.example"),
    ],
)  # fmt: skip
def test_the_search_field_leads_to_what_was_meant(app: App, text: str, where: str) -> None:
    app.client.store.insert([Job(ids.uuid7(), "gone.task", b"[]", "mail")])

    async def story(browser: Visitor) -> str:
        answer = await browser.client.get("/find", params={"text": text})
        return str(answer.headers["location"])

    assert visit(app, story) == where


def test_a_key_that_looks_like_an_id_is_found_from_there(app: App) -> None:
    put(app, "a", key="deadbeef")
    page = visit(app, lambda browser: browser.text("/jobs?id=deadbeef"))
    assert 'href="/jobs?key=deadbeef"' in page
    page = visit(app, lambda browser: browser.text("/jobs?key=12345678"))
    assert 'href="/jobs?id=12345678"' in page


def test_tasks_are_sorted_by_what_they_did_today(app: App) -> None:
    day = app.client.store.time() // SECOND // 86400 * 86400
    for task, counts in (("mail.send", {FAILED: 5, DEAD: 3}), ("mail.fade", {FAILED: 7, DONE: 2, PUT: 9})):
        write_sums(app.client.store, {Place(DAYS, day, "mail", task): Sums(counts)})

    async def story(browser: Visitor) -> list[list[str]]:
        pages = [await browser.text(f"/tasks{query}") for query in ("", "?sort=dead", "?sort=failed", "?sort=done")]
        return [re.findall(r'<td><a href="/tasks/([^"]+)"', page) for page in pages]

    by_name, dead, failed, done = visit(app, story)
    assert by_name == failed == done == ["mail.fade", "mail.send"]
    assert dead == ["mail.send", "mail.fade"]


def test_a_job_is_mended_on_its_page(app: App, tokens: Tokens) -> None:
    (id,) = put(app, "ann@example.org")
    app.drain()

    async def story(browser: Visitor) -> list[str]:
        await browser.sign_in("operator-token")
        seen = [await browser.text(f"/jobs/{id}")]
        (version,) = re.findall(r'name="version" value="(\w+)"', seen[0])
        wrong = await browser.act(f"/jobs/{id}/change", {"version": version, "args:json": "[7]"}, f"/jobs/{id}")
        assert wrong.status_code == 422
        late = await browser.act(f"/jobs/{id}/change", {"version": "old", "args:json": '["x"]'}, f"/jobs/{id}")
        assert late.status_code == 409
        typed = {"version": version, "args:json": '["bob@example.org"]', "retry": "true"}
        assert (await browser.act(f"/jobs/{id}/change", typed, f"/jobs/{id}")).status_code == 303
        cloned = await browser.act(f"/jobs/{id}/clone", {}, f"/jobs/{id}")
        assert cloned.headers["location"].startswith("/jobs/")
        return [*seen, wrong.text, late.text, await browser.text(f"/jobs/{id}"), cloned.headers["location"]]

    page, wrong, late, mended, clone = visit(app, story, tokens)
    version = re.findall(r'name="version" value="(\w+)"', page)
    assert "ann@example.org" in re.findall(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)[0]
    for text, typed, why in ((wrong, "[7]", "mail.send"), (late, "x", "it has changed since")):
        assert typed in re.findall(r"<textarea[^>]*>(.*?)</textarea>", text, re.DOTALL)[0]
        (said,) = re.findall(r'<p class="problem" role="alert">(.*?)</p>', text)
        assert why in said
        assert re.findall(r'name="version" value="(\w+)"', text) == version
    assert "edited" in mended
    assert "ann@example.org" in mended, "the arguments before"
    assert state_of(app, id) is State.READY
    assert clone.partition("?")[0] != f"/jobs/{id}"


def test_a_secret_is_hidden_in_the_form_and_kept(app: App, tokens: Tokens) -> None:
    handle = app.named("mail.send").using(delay=60).enqueue("ann@example.org", "hush")

    async def story(browser: Visitor) -> str:
        await browser.sign_in("operator-token")
        page = await browser.text(f"/jobs/{handle.id}")
        (version,) = re.findall(r'name="version" value="(\w+)"', page)
        (text,) = re.findall(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)
        typed = {"version": version, "args:json": unescape(text).replace("ann", "bob")}
        assert (await browser.act(f"/jobs/{handle.id}/change", typed, f"/jobs/{handle.id}")).status_code == 303
        return page + await browser.text(f"/jobs/{handle.id}")

    assert "hush" not in visit(app, story, tokens)
    assert handle.record().body == b'{"address":"bob@example.org","password":"hush"}'
