"""An HTTP task is edited in its form, as a person does it: by mouse, by keyboard, on a phone, without JavaScript."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.server.console.browser.place import MakePerson, Person, Place
from tests.server.console.browser.test_pages import NARROW, violations

SECRET = "secret-of-the-shop-" * 2
URL = "http://127.0.0.1:9/hook"


@pytest.fixture
def shipped(place: Place) -> Iterator[str]:
    """An HTTP task with a secret, in a header and to sign."""
    settings = {"url": f"{URL}?key={SECRET}", "queue": "later", "secret": SECRET, "headers": {"x-key": SECRET}}
    assert place.api.post("/v1/tasks", json={"task": "shipped", "settings": settings}).status_code == 201
    yield "shipped"
    place.api.delete("/v1/tasks/shipped")


def settings_of(place: Place) -> dict[str, object]:
    found: dict[str, object] = place.api.get("/v1/tasks/shipped").json()["settings"]
    return found


def test_a_wrong_value_is_told_beside_its_field_and_secrets_stay(ann: Person, shipped: str) -> None:
    page = ann.open("/tasks/shipped")
    page.get_by_role("link", name="Edit", exact=True).click()
    assert SECRET not in page.content()
    page.get_by_label("URL", exact=True).fill("http://127.0.0.1:9/other?...")
    page.get_by_label("Retry when", exact=True).fill("res.code !=")
    page.get_by_label("Owner", exact=True).fill("shop team")
    before = settings_of(ann.place)
    ann.press("Save")
    wrong = page.get_by_label("Retry when", exact=True)
    expect(wrong).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#wrong-retry_when")).to_contain_text("at 12")
    expect(page.get_by_label("URL", exact=True)).to_have_value("http://127.0.0.1:9/other?...")
    expect(page.get_by_label("Owner", exact=True)).to_have_value("shop team")
    assert violations(page) == ""
    page.emulate_media(color_scheme="dark")
    assert violations(page, runOnly=["color-contrast"]) == ""
    assert settings_of(ann.place) == before
    wrong.fill("res.code != 200")
    ann.press("Save")
    ann.is_told("The task is changed")
    after = {"url": "http://127.0.0.1:9/other?...", "retry_when": "res.code != 200", "owner": "shop team"}
    assert settings_of(ann.place) == {**before, **after}
    # What is emptied is taken out.
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Retry when", exact=True).fill("")
    ann.press("Save")
    ann.is_told("The task is changed")
    assert "retry_when" not in settings_of(ann.place)
    assert ann.passing == 1


def test_two_editors_do_not_overwrite_each_other(make_person: MakePerson, shipped: str) -> None:
    ann, bob = make_person(), make_person(viewport=NARROW)
    for person in (ann, bob):
        person.open("/tasks/shipped/edit")
    ann.page.get_by_label("URL", exact=True).fill("http://127.0.0.1:9/ann?...")
    ann.press("Save")
    ann.is_told("The task is changed")
    page = bob.page
    page.get_by_label("Delay", exact=True).fill("7m")
    bob.press("Save")
    told = page.get_by_role("alert")
    expect(told).to_contain_text("The task has changed since you saw it")
    expect(told.get_by_role("listitem")).to_have_count(1)
    expect(told.get_by_role("listitem")).to_contain_text("ann (console): url")
    expect(page.locator("#now-url")).to_contain_text("http://127.0.0.1:9/ann?...")
    expect(page.get_by_label("Delay", exact=True)).to_have_value("7m")
    assert violations(page) == ""
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    assert "delay" not in settings_of(bob.place)
    # What ann has done is taken over, and saved with the own change.
    page.get_by_label("URL", exact=True).fill("http://127.0.0.1:9/ann?...")
    bob.press("Save")
    bob.is_told("The task is changed")
    assert (settings_of(bob.place)["url"], settings_of(bob.place)["delay"]) == ("http://127.0.0.1:9/ann?...", "7m")
    assert bob.passing == 1


def focus_by_keyboard(page: Page, label: str) -> None:
    """Moves on with the Tab key until the field has the focus."""
    wanted = page.get_by_label(label, exact=True)
    for _ in range(60):
        page.keyboard.press("Tab")
        if wanted.evaluate("it => it === document.activeElement"):
            return
    raise AssertionError(f"{label} is not reached by keyboard")


def test_the_form_works_by_keyboard_without_javascript_in_chinese(make_person: MakePerson, shipped: str) -> None:
    person = make_person(java_script_enabled=False, locale="zh-CN")
    page = person.open("/tasks/shipped/edit")
    for label, text in (("延迟", "soon"), ("负责人", "商店")):
        focus_by_keyboard(page, label)
        page.keyboard.type(text)
    page.keyboard.press("Enter")
    expect(page.locator("#wrong-delay")).to_be_visible()
    expect(page.get_by_label("负责人", exact=True)).to_have_value("商店")
    page.get_by_label("延迟", exact=True).fill("5m")
    page.keyboard.press("Enter")
    person.is_told("任务已更改")
    assert (settings_of(person.place)["delay"], settings_of(person.place)["owner"]) == ("5m", "商店")
