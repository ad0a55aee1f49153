"""Flows as a person at the console sees and changes them, on SQLite and on Redis."""

import pytest
from playwright.sync_api import expect

from tests.cli.project import until
from tests.server.console.browser.place import Person, Place


def placed(place: Place, task: str, *args: object) -> str:
    """A flow that the task places; its id."""
    id = place.add(task, *args)
    place.becomes(id, "done")
    return str(place.api.get(f"/v1/jobs/{id}").json()["note"])


def becomes(place: Place, flow: str, state: str) -> None:
    until(lambda: place.api.get(f"/v1/flows/{flow}").json()["state"] == state)


@pytest.fixture(autouse=True)
def parcels_are_limited(request: pytest.FixtureRequest) -> None:
    """What waits at a gate leaves threads to the others."""
    if "operator" in request.fixturenames:
        place: Place = request.getfixturevalue("any_place")
        assert place.api.put("/v1/limits/queue:stuck", json={"at_once": 2}).status_code == 200


def test_a_flow_that_failed_is_retried(operator: Person) -> None:
    place = operator.place
    flow = placed(place, "place_broken", 8)
    becomes(place, flow, "dead")
    page = operator.open("/")
    page.get_by_role("link", name="See what failed, retry it").first.click()
    page.get_by_role("row").filter(has_text="refund").get_by_role("link").first.click()
    page.wait_for_url(f"**/flows/{flow}")
    expect(page.locator(".failed")).to_contain_text("LookupError: no such card")
    page.locator(".failed").get_by_role("link", name="find the card").click()
    expect(page.locator("main")).to_contain_text("What waits for it")
    page.get_by_role("link", name="refund 8").click()
    place.write("mended", "")
    operator.confirm("Retry")
    operator.is_told("The flow goes on")
    becomes(place, flow, "done")
    expect(page.locator(".figures")).to_contain_text("2 / 2")


def test_a_flow_is_cancelled_with_what_runs(operator: Person) -> None:
    place = operator.place
    flow = placed(place, "place_order", 7, "no gate")
    page = operator.open(f"/flows/{flow}")
    expect(page.locator(".box.running")).to_have_count(1)
    page.locator("summary", has_text="Cancel").click()
    page.get_by_label("Reason", exact=True).fill("no longer wanted")
    page.locator("details[open]").get_by_role("button", name="Cancel").click()
    operator.is_told("The flow is cancelled")
    becomes(place, flow, "cancelled")
    operator.open(f"/flows/{flow}")
    operator.sees("no longer wanted")
    assert page.locator(".box.running").count() == 0


def test_a_decision_with_a_note_lets_its_job_go_on(operator: Person) -> None:
    place = operator.place
    job = place.add("ask", 9)
    place.becomes(job, "scheduled")
    page = operator.open("/")
    page.get_by_role("link", name="Decide").click()
    page.get_by_label("Note", exact=True).fill("he is right")
    operator.press("Approve")
    operator.is_told("refund of 70: approved.")
    operator.sees("Nothing waits for a decision")
    place.becomes(job, "done")
    assert place.api.get(f"/v1/jobs/{job}").json()["note"] == "True by ann: he is right"


def test_the_graph_follows_the_jobs(ann: Person) -> None:
    place = ann.place
    assert place.api.put("/v1/limits/queue:stuck", json={"at_once": 2}).status_code == 200
    flow = placed(place, "place_order", 17, "a late gate")
    page = ann.open(f"/flows/{flow}")
    expect(page.locator("#live")).to_have_text("Live")
    page.evaluate("window.mark = 1")
    group = page.locator(".box", has_text="app.wait")
    expect(group).to_contain_text("4/12 · 2 running · 6 ready")
    expect(page.locator(".box", has_text="hand over")).to_contain_text("blocked")
    place.write("a late gate", "")
    expect(page.locator(".box", has_text="hand over")).to_contain_text("scheduled")
    expect(group).to_have_class("box done")
    assert page.evaluate("window.mark === 1")
    # Whoever points at a box finds its jobs.
    group.click()
    page.wait_for_url(f"**/flows/{flow}/nodes?after=5")
    expect(page.locator("tbody tr")).to_have_count(16)


def test_what_is_typed_is_not_lost_when_the_page_refreshes(ann: Person) -> None:
    job = ann.place.add("ask", 19)
    ann.place.becomes(job, "scheduled")
    page = ann.open("/approvals")
    expect(page.locator("#live")).to_have_text("Live")
    note = page.locator("li", has_text="19").get_by_label("Note", exact=True)
    note.fill("he is")
    note.blur()
    other = ann.place.add("ask", 20)
    ann.place.becomes(other, "scheduled")
    # A stream of our own says when the page has heard of it.
    page.evaluate(
        "url => new Promise(resolve => { const one = new EventSource(url);"
        " one.addEventListener('look', () => { one.close(); resolve(); }); })",
        f"{ann.place.url}/live",
    )
    assert note.input_value() == "he is"
    note.fill("")
    note.blur()
    expect(page.locator(".approvals li")).to_have_count(2)
