"""The pages of schedules: all of them, and one with its last runs."""

import html
import re

import pytest
from msgspec.structs import replace

from tarry import App, Calendar, Cron
from tarry.keeper import schedule_state
from tarry.keeper.schedule_state import ScheduleState
from tarry.model.duration import SECOND
from tarry.model.schedules.schedule import ScheduledRun
from tarry.store.queries import stored_schedules
from tarry.store.queries.missed_schedules import MARK
from tarry.store.rules.base import Query
from tests.server.console.visiting import Tokens, Visitor, visit

NOON = 1_795_003_200 * SECOND


@pytest.fixture
def job(app: App) -> str:
    """Of one of the ticks that are told."""
    id = app.client.store.find(Query())[0].id.hex()
    runs = [
        ScheduledRun(NOON, end="left_out", ticks=3),
        ScheduledRun(NOON + SECOND, "0" * 32, "dead", NOON + 3 * SECOND, NOON + 10 * SECOND),
        ScheduledRun(NOON + 2 * SECOND, "1" * 32),
        ScheduledRun(NOON + 3 * SECOND, id),
        ScheduledRun(NOON + 4 * SECOND, end="refused"),
    ]
    state = ScheduleState("0 3 * * * UTC", NOON, NOON, NOON, runs=runs)
    assert schedule_state.write(app.client.store, "mail.send", state, None)
    return id


def rows(page: str) -> list[str]:
    """Those of the table of runs."""
    return page.partition("<tbody>")[2].partition("</tbody>")[0].split("<tr>")[1:]


def test_a_run_of_each_kind(app: App, job: str) -> None:
    async def story(browser: Visitor) -> str:
        return await browser.text("/schedules/mail.send")

    refused, ready, gone, dead, left_out = rows(visit(app, story))
    assert "not enqueued: see the log of the keeper" in refused
    assert 'href="/jobs/' in ready
    assert job[-8:] in ready
    assert ">ready<" in ready
    assert "no longer kept" in gone
    assert "href" not in gone
    assert all(text in dead for text in (">dead<", ">2s<", ">7s<", "2026-11-18 12:00:01", "no longer kept"))
    assert "3 times left out, as nothing ran then" in left_out


def test_in_chinese_and_for_those_who_only_look(app: App, job: str, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> tuple[str, str]:
        await browser.sign_in("reader-token")
        page = (await browser.get("/schedules/mail.send", **{"accept-language": "zh"})).text
        return page, (await browser.get("/schedules/mail.sent")).text

    page, missing = visit(app, story, tokens)
    assert "当时没有进程运行，跳过了 3 次" in page
    assert 'name="csrf"' not in page.partition("<main")[2]
    assert "did you mean mail.send?" in missing


def test_the_list_leads_there_and_tells_the_days(app: App) -> None:
    @app.task(name="on days", cron=Cron("@daily", calendar=Calendar("mon-fri")))
    def on_days() -> None: ...

    async def story(browser: Visitor) -> tuple[str, str]:
        return await browser.text("/schedules"), await browser.text("/schedules/on%20days")

    listed, shown = visit(app, story)
    assert 'href="/schedules/on%20days"' in listed
    assert "mon-fri" in listed
    assert "every day" in listed
    assert "mon-fri" in shown
    assert "It has not run yet." in shown


def test_those_of_people_are_told_apart(app: App) -> None:
    async def story(browser: Visitor) -> list[str]:
        put = {
            "task": "mail.send",
            "cron": "0 7 * * 1-5",
            "zone": "Europe/Paris",
            "args:json": '["ann"]',
        }
        answer = await browser.act("/schedules/evening/set", put)
        assert (answer.status_code, answer.headers["location"]) == (303, "/schedules/evening")
        wrong = await browser.act("/schedules/evening/set", {**put, "cron": "0 7 * *"})
        assert wrong.status_code == 422
        assert 'id="wrong-cron"' in wrong.text
        pages = ["/schedules", "/schedules/evening", "/new-schedule?name=evening", "/schedules?source=code"]
        return [await browser.text(page) for page in pages]

    every, one, form, code = visit(app, story)
    assert "at 07:00 on weekdays, Paris time" in every
    assert "<td>people</td>" in every
    assert "<td>code</td>" in every
    assert "evening" not in code
    assert "at 07:00 on weekdays, Paris time" in one
    assert "/schedules/evening/delete" in one
    assert form.count("<li>") == 5
    assert 'value="0 7 * * 1-5"' in form


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("cron=*/5+*+*+*+*", "every 5 minutes, UTC"),
        ("every=90s", "every 90s"),
        ("at=2030-01-01T00:00:00Z", "once, at 2030-01-01 00:00:00 UTC"),
        ("at=2020-01-01T00:00:00Z", "No tick is left."),
        ("cron=*/5+*+*+*+*&every=3", "cron= and every= says when"),
        ("cron=x", "write minute hour day month weekday"),
        ("at=soon", ": a moment such as"),
        ("every=1h&until=2020-01-01", "needs a time zone"),
        ("until=2030-01-01T00:00:00Z", "The next runs stand here as you type."),
    ],
)
def test_what_was_typed_up_to_now(app: App, query: str, shown: str) -> None:
    async def story(browser: Visitor) -> str:
        return await browser.text(f"/new-schedule?name=new&{query}")

    assert shown in visit(app, story).replace("&#39;", "'")


def test_an_edit_keeps_what_the_form_does_not_show(app: App) -> None:
    call = app.named("mail.send").using(expires="1h", timeout=5, labels={"customer": "7"}, cost=1).call("ann")
    app.schedules.put("evening", call, every="1h", until=4_000_000_000)
    before = stored_schedules.get(app.client.store, "evening")

    async def story(browser: Visitor) -> None:
        page = await browser.text("/new-schedule?name=evening")
        fields = re.findall(r'<input[^>]*? name="([^"]*)"[^>]*? value="([^"]*)"', page.partition('class="settings"')[2])
        form = {name: html.unescape(value) for name, value in fields} | {"args:json": '["bob"]'}
        answer = await browser.act("/schedules/evening/set", {**form, "catch_up": "skip"})
        assert answer.status_code == 303, answer.text

    visit(app, story)
    after = stored_schedules.get(app.client.store, "evening")
    assert before is not None
    assert after is not None
    assert after.definition == replace(before.definition, body=b'["bob"]', catch_up="skip")


def test_the_store_keeps_no_more_of_them(app: App) -> None:
    app.client.schedule_room.most = 1
    app.schedules.put("morning", app.named("mail.send").call("ann"), every="1h")

    async def story(browser: Visitor) -> str:
        form = {"task": "mail.send", "args:json": "[]", "every": "1h"}
        return (await browser.act("/schedules/evening/set", form)).text

    assert "schedule evening: the store keeps 1 schedules, and no more" in visit(app, story)


def test_who_may_not_change_it_sees_no_form(app: App, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> str:
        tokens.add("reader", "read")
        await browser.sign_in("reader-token")
        return await browser.text("/new-schedule?name=new")

    assert "Only an administrator changes schedules." in visit(app, story, tokens)


def test_the_overview_tells_of_those_in_the_store_that_made_no_job(app: App, tokens: Tokens) -> None:
    store = app.client.store
    for name, queue in (("evening", "mail"), ("night", "other")):
        app.schedules.put(name, app.named("mail.send").using(queue=queue).call("ann"), every="1h")
        stored_schedules.change(store, name, lambda one: one and replace(one, runs=[ScheduledRun(NOON, end="refused")]))
        store.kv_cas(f"{MARK}{name}", b"", None)

    async def story(browser: Visitor) -> tuple[str, str]:
        await browser.sign_in("all-token")
        whole = await browser.text("/")
        await browser.sign_in("mail-token")
        return whole, await browser.text("/")

    tokens.add("all", "read").add("mail", "read", queues='["mail"]')
    whole, part = visit(app, story, tokens)
    assert "The last ticks of 2 schedules made no jobs." in whole
    assert "evening: the tick of" in part
    assert "night" not in part
