"""Queues and schedules with names that a browser takes for a step in a path."""

import pytest
from playwright.sync_api import expect

from tests.server.console.browser.place import Person


@pytest.mark.parametrize("name", [".", ".."])
def test_its_links_and_acts_are_those_of_no_other_page(ann: Person, name: str) -> None:
    put = {"task": "app.nightly", "queue": name, "delay": 3600}
    assert ann.place.api.post("/v1/jobs", json=put).status_code == 201
    page = ann.open("/queues")
    page.get_by_role("link", name=name, exact=True).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    ann.press("Pause")
    expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    page = ann.open("/schedules")
    page.get_by_role("link", name="Add a schedule").click()
    page.get_by_label("Name", exact=True).fill(name)
    ann.press("Next")
    page.get_by_label("Task", exact=True).fill("app.nightly")
    page.get_by_label("Every", exact=True).fill("1h")
    ann.press("Save")
    ann.is_told(f"Schedule {name} is saved.")
    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.get_by_label("Every", exact=True)).to_have_value("1h")
