"""The pages of schedules: all of them, and one with its last runs."""

import pytest

from tarry import App, Calendar, Cron
from tarry.keeper import schedule_state
from tarry.keeper.schedule_state import ScheduleState
from tarry.model.duration import SECOND
from tarry.model.schedules.schedule import ScheduledRun
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
