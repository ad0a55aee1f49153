"""Each page, as everybody sees it: on a screen and on a phone, in the dark, by keyboard, without JavaScript."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from urllib.parse import quote

import pytest
from axe_playwright_python.base import AXE_SCRIPT, AxeResults
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, Response, ViewportSize, expect

from tarry.keeper import schedule_state
from tarry.model.duration import SECOND
from tarry.model.schedules.schedule import ScheduledRun
from tarry.server.serving.console import PAGES as CONSOLE_PAGES
from tarry.store.opening import open_store
from tests.cli.project import until
from tests.server.console.browser.place import MakePerson, Person, Place, people

MOST_BYTES = 150_000
WIDE: ViewportSize = {"width": 1280, "height": 900}
NARROW: ViewportSize = {"width": 390, "height": 844}
PAGES = (
    "/", "/queues", "/queues/mail", "/queues/slow", "/jobs", "/jobs?state=dead", "/jobs?q=sate:dead",
    "/jobs/{done}", "/jobs/{dead}", "/jobs/{running}", "/jobs/{scheduled}",
    "/tasks", "/tasks/app.send", "/tasks/hook", "/endpoints", "/endpoints/hook",
    "/new-task", "/tasks/hook/edit",
    "/flows", "/flows?state=dead", "/flows/{flow}", "/flows/{broken}", "/flows/{flow}/nodes", "/approvals",
    "/jobs/{flow}", "/jobs/{node}", "/jobs/{blocked}", "/jobs/{asking}",
    "/schedules", "/schedules/app.nightly", "/schedules/evening", "/limits",
    "/new-schedule", "/new-schedule?name=evening", "/new-schedule?name=new&cron=0+7+*+*+1-5&zone=Europe/Paris",
    "/limits/each:app.send/keys?key=new",
    "/hosts", "/hosts/{host}", "/connections", "/stores", "/operations", "/operations/{operation}",
    "/errors", "/errors?order=count&new_since=2h", "/errors/{error}",
    "/audit", "/audit?who=nobody",
)  # fmt: skip


@pytest.fixture(scope="module")
def names(place: Place) -> Iterator[dict[str, str]]:
    """Something of every kind, so that no page is empty: the ids by what they are."""
    found = {
        "done": place.add("send", "ann@example.org", "a secret word"),
        "dead": place.add("send", "nowhere"),
        "running": place.add("wait", "the gate"),
        "scheduled": place.add("send", "bob@example.org", delay=3600, key="bob"),
    }
    place.add("send", "cy@example.org", queue="elsewhere")
    hook = {"task": "hook", "settings": {"url": "http://127.0.0.1:9/hook", "queue": "hooks", "owner": "ann"}}
    assert place.api.post("/v1/tasks", json=hook).status_code == 201
    assert place.api.put("/v1/limits/queue:slow", json={"at_once": 3}).status_code == 200
    assert place.api.put("/v1/limits/each:app.send=whale", json={"at_once": 20, "rate": "100/s"}).status_code == 200
    assert place.api.post("/v1/limits/each:app.send=minnow/pause").status_code == 200
    assert place.api.post("/v1/queues/elsewhere/pause").status_code == 200
    counted = place.api.post("/v1/operations", json={"act": "delete", "dry_run": True, "filter": {"queue": "mail"}})
    found |= flows(place)
    evening = {"task": "app.nightly", "cron": "0 19 * * 1-5", "zone": "Europe/Paris", "jitter": "30s"}
    assert place.api.put("/v1/schedules/evening", json=evening).status_code == 200
    (host,) = place.api.get("/v1/hosts").json()["hosts"]
    found["host"] = quote(host["instance"], safe="")
    found["operation"] = counted.json()["id"]
    for state in ("done", "dead", "running"):
        place.becomes(found[state], state)
    remember_runs(place, found["done"])
    until(lambda: place.api.get("/v1/errors").json()["errors"])
    found["error"] = place.api.get("/v1/errors").json()["errors"][0]["id"]
    yield found
    place.write("the gate", "")


def remember_runs(place: Place, job: str) -> None:
    """As if the schedule had ticked: a run of each kind."""
    store = open_store(place.store_url)
    noon = 1_795_003_200 * SECOND
    runs = [
        ScheduledRun(noon, job),
        ScheduledRun(noon + SECOND, "0" * 32),
        ScheduledRun(noon + 2 * SECOND, "1" * 32, "dead", noon + 3 * SECOND, noon + 4 * SECOND),
        ScheduledRun(noon + 5 * SECOND, end="left_out", ticks=3),
        ScheduledRun(noon + 6 * SECOND, end="refused"),
    ]

    def is_written() -> bool:
        state, cell = schedule_state.read(store)["app.nightly"]
        return schedule_state.write(store, "app.nightly", replace(state, runs=runs), cell)

    until(is_written)
    store.close()


def flows(place: Place) -> dict[str, str]:
    """One that runs, one that is dead, and jobs of them; and a job that waits for a decision."""
    assert place.api.put("/v1/limits/queue:stuck", json={"at_once": 2}).status_code == 200
    placed = {"flow": place.add("place_order", 7, "the gate"), "broken": place.add("place_broken", 8)}
    for id in placed.values():
        place.becomes(id, "done")
    found = {name: str(place.api.get(f"/v1/jobs/{id}").json()["note"]) for name, id in placed.items()}
    until(lambda: place.api.get(f"/v1/flows/{found['broken']}").json()["state"] == "dead")
    asking = place.add("ask", 9)
    place.becomes(asking, "scheduled")
    ids = {index: f"{found['flow'][:-8]}{index:08x}" for index in (6, 19)}
    return found | {"node": ids[6], "blocked": ids[19], "asking": asking}


@pytest.fixture(scope="module")
def visitor(browser: Browser, place: Place) -> Iterator[Person]:
    with people(browser, place) as make:
        yield make(viewport=WIDE)


@pytest.fixture
def reader(visitor: Person) -> Iterator[Person]:
    """Ann, who has seen other pages before: she changes nothing, and a browser of her own costs as much as a page."""
    visitor.page.set_viewport_size(WIDE)
    visitor.page.emulate_media(color_scheme="light")
    yield visitor
    visitor.check()


@pytest.mark.parametrize("path", PAGES)
def test_everybody_can_use_it(reader: Person, names: dict[str, str], path: str) -> None:
    with answers_to(reader.page) as answers:
        page = reader.open(path.format(**names))
        assert page.title().endswith(" · tarry")
        assert page.locator("h1").count() == 1
        check_bytes(answers)
    check_accessible(page)


@contextmanager
def answers_to(page: Page) -> Iterator[list[Response]]:
    """All that the browser is answered for the page that it opens."""
    answers: list[Response] = []

    def see(answer: Response) -> None:
        if answer.request.is_navigation_request():
            # What the page before still fetched is not of this one.
            answers.clear()
        answers.append(answer)

    page.on("response", see)
    yield answers
    page.remove_listener("response", see)


def check_accessible(page: Page) -> None:
    """In both colours, and also on a phone, where all but the menu has the same colours: to measure them takes longer
    than all other rules."""
    assert violations(page) == ""
    page.emulate_media(color_scheme="dark")
    assert violations(page, runOnly=["color-contrast"]) == ""
    page.set_viewport_size(NARROW)
    assert violations(page, rules={"color-contrast": {"enabled": False}}) == ""
    # What does not fit scrolls within itself, and never the page.
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]


@pytest.mark.parametrize("colors", ["light", "dark"])
def test_the_menu_of_a_phone_can_be_read(make_person: MakePerson, colors: Literal["light", "dark"]) -> None:
    page = make_person(viewport=NARROW, color_scheme=colors).open("/limits")
    assert violations(page) == ""
    page.get_by_role("button", name="Menu", exact=True).click()
    expect(page.get_by_role("navigation").get_by_role("link", name="Hosts", exact=True)).to_be_visible()
    assert violations(page) == ""


def check_bytes(answers: list[Response]) -> None:
    """All that a page took to be shown is little."""
    # The stream of what changes has no end.
    files = [answer for answer in answers if not answer.url.endswith("/live")]
    assert len(files) >= 4
    assert sum(len(answer.body()) for answer in files) < MOST_BYTES
    assert {answer.status for answer in answers} == {200}


def test_each_can_be_read_without_javascript(make_person: MakePerson, names: dict[str, str]) -> None:
    person = make_person(java_script_enabled=False)
    for path in PAGES:
        page = person.open(path.format(**names))
        expect(page.locator("h1"), path).to_be_visible()
        # It is not said to be live.
        expect(page.locator("#live"), path).to_be_hidden()


@pytest.mark.parametrize("path", ["/sign-in", "/nowhere"])
def test_pages_without_a_session_are_for_everybody_too(make_person: MakePerson, path: str) -> None:
    person = make_person(token="", viewport=NARROW)
    person.page.goto(person.place.url + path)
    assert violations(person.page) == ""
    person.page.emulate_media(color_scheme="dark")
    assert violations(person.page, runOnly=["color-contrast"]) == ""


def violations(page: Page, **options: object) -> str:
    """What axe finds wrong with the page, by the rules that its options name or by all."""
    options["resultTypes"] = ["violations"]
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found = AxeResults(page.evaluate("of => axe.run(of).then(({violations}) => ({violations}))", options))
    return found.generate_report() if found.violations_count else ""


def test_acts_work_without_javascript(make_person: MakePerson) -> None:
    person = make_person(java_script_enabled=False)
    job = person.place.add("send", "ann@example.org", queue="plain", delay=3600)
    person.open(f"/jobs/{job}")
    person.press("Run now")
    person.is_told("The job is ready")
    person.confirm("Delete")
    person.is_told("The job is deleted")
    person.open("/queues/mail")
    person.press("Pause")
    person.press("Resume")
    person.is_told("Queue mail is resumed")


def test_the_keyboard_is_enough(ann: Person) -> None:
    job = ann.place.add("send", "ann@example.org", queue="typed", delay=3600)
    page = ann.open("/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    # Without the skip, the navigation comes next, in its order.
    for name in ("tarry", "Overview", "Queues", "Jobs"):
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name=name, exact=True).first).to_be_focused()
    page.goto(f"{ann.place.url}/jobs/{job}")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    # The first thing of the page itself.
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Run now")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    warning = page.locator("details[open]")
    expect(warning).to_be_visible()
    page.keyboard.press("Tab")
    expect(warning.get_by_role("button")).to_be_focused()
    page.keyboard.press("Enter")
    ann.is_told("The job is cancelled")
    assert ann.place.state(job) == "cancelled"


def test_no_page_is_left_out() -> None:
    """Each route of the console is among the pages that these tests open."""
    for page in CONSOLE_PAGES:
        form = re.compile(re.sub(r"\\\{\w+\\\}", "[^/?]+", re.escape(page.route)))
        assert any(form.fullmatch(path.partition("?")[0]) for path in PAGES), page.route


SEEN_BY_KEYBOARD = """
() => {
  for (const each of document.querySelectorAll("main details")) each.open = true;
  const all = [...document.querySelectorAll("main :is(button, summary, input:not([type=hidden]), select, textarea)")];
  window.wanted = all.filter(each => each.getClientRects().length && !each.disabled);
  window.reached = new Set();
  window.unseen = [];
  document.addEventListener("focusin", event => {
    const style = getComputedStyle(event.target);
    window.reached.add(event.target);
    if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 1) window.unseen.push(event.target.outerHTML);
  });
  return document.querySelectorAll("a, button, summary, input, select, textarea, pre, [tabindex]").length;
}
"""


MISSED_BY_KEYBOARD = "window.wanted.filter(each => !window.reached.has(each)).map(each => each.outerHTML)"


@pytest.mark.parametrize("path", PAGES)
def test_each_act_of_a_page_can_be_reached_by_keyboard(reader: Person, names: dict[str, str], path: str) -> None:
    page = reader.open(path.format(**names))
    for _ in range(page.evaluate(SEEN_BY_KEYBOARD) + 2):
        # Held down, it goes on as if pressed again, and each press is asked of the browser once.
        page.keyboard.down("Tab")
    page.keyboard.up("Tab")
    assert (page.evaluate(MISSED_BY_KEYBOARD), page.evaluate("window.unseen")) == ([], [])
    assert page.evaluate("window.reached.size") > 5


def test_focus_is_always_visible(ann: Person) -> None:
    page = ann.open("/queues/mail")
    seen = set()
    for _ in range(25):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "(() => { const it = document.activeElement, style = getComputedStyle(it); return [it.tagName,"
            " style.outlineStyle, parseFloat(style.outlineWidth), it.getBoundingClientRect().width]; })()"
        )
        if focused[0] in ("BODY", "HTML"):
            break
        seen.add(focused[0])
        assert focused[1] != "none", focused
        assert focused[2] >= 1, focused
        assert focused[3] > 0, focused
    assert {"A", "INPUT", "BUTTON"} <= seen


def test_a_phone_has_every_page(make_person: MakePerson) -> None:
    person = make_person(viewport=NARROW, has_touch=True, is_mobile=True)
    page = person.open("/")
    for name in (
        "Queues",
        "Jobs",
        "Flows",
        "Approvals",
        "Tasks",
        "Schedules",
        "Limits",
        "Hosts",
        "Stores",
        "Operations",
    ):
        page.get_by_role("button", name="Menu", exact=True).tap()
        page.get_by_role("navigation").get_by_role("link", name=name, exact=True).first.tap()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)


def test_secrets_stay_off_the_page(ann: Person, names: dict[str, str]) -> None:
    put = ann.place.api.post("/v1/jobs", json={"task": "app.send", "args": {"address": "a@b", "password": "hush-hush"}})
    page = ann.open(f"/jobs/{put.json()['id']}")
    expect(page.locator("main")).to_contain_text("a@b")
    assert "hush-hush" not in page.content()
