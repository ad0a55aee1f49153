"""The form with the settings of an HTTP task: what it shows, and what becomes of what is typed."""

import html
import re
from typing import Any

import httpx
import pytest

from tarry import App
from tarry.push.endpoint.fields import FIELDS
from tests.server.console.visiting import Tokens, Visitor, visit

URL = "https://shop.example/hook"
RAW, OLD = "raw-secret-" * 3, "old-secret-" * 3
HIDDEN: dict[str, Any] = {
    "url": f"{URL}?key=sesame",
    "headers": {"authorization": "Bearer sesame"},
    "secrets": [RAW, OLD],
    "alert": ["https://hooks.example/sesame"],
    "delay": "10m",
    "schedule": ["1m", "3m"],
    "description": 'says "5 < 6"',
}


def stored(app: App) -> dict[str, Any]:
    app.http.sync(app.client.store)
    return dict(app.http.endpoints["hook"].settings)


def fields_of(page: str) -> list[tuple[str, str]]:
    """The fields of the form as a browser would send them."""
    (form,) = re.findall(r'<form class="settings".*?</form>', page, re.DOTALL)
    found = []
    for match in re.finditer(r"<(input)[^>]*>|<(textarea|select).*?</\2>", form, re.DOTALL):
        whole, tag = match[0], match[1] or match[2]
        name = re.search(r' name="([^"]*)"', whole)
        assert name, whole
        if 'type="checkbox"' in whole and " checked" not in whole:
            continue
        value = re.search(r' value="([^"]*)"' if tag == "input" else r">\n?([^<]*)</textarea>", whole)
        if tag == "select":
            chosen = re.search(r'<option value="([^"]*)" selected>', whole)
            found.append((name[1], html.unescape(chosen[1]) if chosen else ""))
        else:
            found.append((name[1], html.unescape(value[1]) if value else ""))
    return found


def action_of(page: str) -> str:
    found = re.search(r'<form class="settings" method="post" action="([^"]*)"', page)
    assert found
    return html.unescape(found[1])


async def filled_in(
    browser: Visitor, path: str = "/tasks/hook/edit", **typed: str
) -> tuple[str, list[tuple[str, str]]]:
    """Where the form of that page is sent, and its fields, some of them typed over."""
    page = await browser.text(path)
    return action_of(page), typed_over(page, **typed)


def typed_over(page: str, **typed: str) -> list[tuple[str, str]]:
    fields = fields_of(page)
    names = [name.removeprefix("settings.").removesuffix(":setting") for name, _ in fields]
    assert typed.keys() <= {*names}
    return [(name, typed.get(short, value)) for short, (name, value) in zip(names, fields, strict=True)]


async def send(browser: Visitor, action: str, fields: list[tuple[str, str]]) -> httpx.Response:
    form: dict[str, list[str]] = {}
    for name, value in fields:
        form.setdefault(name, []).append(value)
    return await browser.send(action, form)


async def add(browser: Visitor, **settings: Any) -> None:
    added = await browser.client.post("/v1/tasks", json={"task": "hook", "settings": {**HIDDEN, **settings}})
    assert added.status_code == 201, added.text


def test_each_setting_has_its_field(app: App) -> None:
    async def story(browser: Visitor) -> None:
        names = {name for name, _ in fields_of(await browser.text("/new-task"))}
        settings = {f"settings.{name}:setting" for name in FIELDS if name not in ("secret", "secrets")}
        assert names == {"csrf", "task", "settings.secrets", "settings.secrets:json", *settings}

    visit(app, story)


def test_no_secret_is_shown_and_what_is_left_as_it_is_stays(app: App) -> None:
    async def story(browser: Visitor) -> None:
        await add(browser)
        page = await browser.text("/tasks/hook/edit")
        assert not [word for word in ("sesame", RAW, OLD) if word in page]
        saved = await send(browser, *(await filled_in(browser)))
        assert (saved.status_code, saved.headers["location"]) == (303, "/tasks/hook")
        assert stored(app) == HIDDEN

    visit(app, story)


@pytest.mark.parametrize(
    ("typed", "after"),
    [
        ({"delay": "", "description": " ", "schedule": ""}, {"delay": None, "description": None, "schedule": None}),
        ({"schedule": '["2m"]', "priority": "-3"}, {"schedule": ["2m"], "priority": -3}),
        ({"enabled": "false", "method": "PUT"}, {"enabled": False, "method": "PUT"}),
        ({"headers": "authorization:\r\nx-shop: eu"}, {"headers": {"authorization": "Bearer sesame", "x-shop": "eu"}}),
        ({"headers": ""}, {"headers": None}),
        ({"url": f"{URL}/new?..."}, {"url": f"{URL}/new?key=sesame"}),
        ({"alert": ""}, {"alert": None}),
    ],
)
def test_what_is_typed_is_saved_and_what_is_emptied_is_taken_out(
    app: App, typed: dict[str, str], after: dict[str, Any]
) -> None:
    async def story(browser: Visitor) -> None:
        await add(browser)
        assert (await send(browser, *(await filled_in(browser, **typed)))).status_code == 303
        assert stored(app) == {key: value for key, value in {**HIDDEN, **after}.items() if value is not None}

    visit(app, story)


@pytest.mark.parametrize(
    ("new", "kept", "after"),
    [
        ("", ["***1", "***2"], [RAW, OLD]),
        ("new-" * 8, ["***1"], ["new-" * 8, RAW]),
        ("new-" * 8, [], "new-" * 8),
        ("", ["***2"], OLD),
        ("", [], None),
    ],
)
def test_secrets_are_kept_replaced_and_taken_out(app: App, new: str, kept: list[str], after: Any) -> None:
    async def story(browser: Visitor) -> None:
        await add(browser)
        action, fields = await filled_in(browser)
        assert [value for name, value in fields if name == "secrets"] == ["", "***1", "***2"]
        others = [field for field in fields if field[0] != "secrets"]
        saved = await send(browser, action, [*others, ("secrets", new), *(("secrets", one) for one in kept)])
        assert saved.status_code == 303
        assert stored(app).get("secrets") == after

    visit(app, story)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("url", "ftp://shop.example"),
        ("url", ""),
        ("retry_when", "res.code !="),
        ("timeout", "soon"),
        ("max_attempts", "0"),
        ("until", "never"),
        ("priority", "high"),
        ("headers", "nonsense"),
        ("secrets", "whsec_no"),
        ("alert", "nobody"),
        ("connect_timeout", "2h"),
        ("success", "600"),
    ],
)
@pytest.mark.parametrize("path", ["/tasks/hook/edit", "/new-task"])
def test_a_wrong_value_is_shown_beside_its_field_and_all_that_was_typed_is_kept(
    app: App, path: str, field: str, text: str
) -> None:
    async def story(browser: Visitor) -> None:
        await add(browser)
        typed = {"url": URL, "owner": 'the "team" <a>', "rate": "5/m"} | ({"task": "x"} if path == "/new-task" else {})
        action, fields = await filled_in(browser, path, **{**typed, field: text})
        refused = await send(browser, action, fields)
        assert refused.status_code == 422
        page = refused.text
        assert f'id="wrong-{field}"' in page
        assert re.search(rf'id="set-{field}" aria-describedby="[^"]*wrong-{field}[^"]*" aria-invalid="true"', page)
        again = dict(fields_of(page))
        sent = dict(fields)
        assert {name: value for name, value in again.items() if name != "csrf"} == {
            name: value for name, value in sent.items() if name != "csrf"
        }
        assert action_of(page) == action
        assert stored(app) == HIDDEN
        # Mended, it is saved.
        mended = [(name, value) for name, value in fields_of(page)]
        names = (field, f"{field}:setting", f"settings.{field}", f"settings.{field}:setting")
        right = [(name, (URL if field == "url" else "") if name in names else value) for name, value in mended]
        right = [(name, "") if name.endswith("secrets") and value == text else (name, value) for name, value in right]
        assert (await send(browser, action, right)).status_code == 303

    visit(app, story)


def test_what_may_be_a_mistake_is_told(app: App) -> None:
    async def story(browser: Visitor) -> None:
        for path, page in (("/new-task", "/tasks/hook"), ("/tasks/hook/edit", "/tasks/hook")):
            new = {"task": "hook", "url": URL} if path == "/new-task" else {}
            saved = await send(browser, *(await filled_in(browser, path, retry_when="res.code != 200", **new)))
            assert saved.status_code == 303
            assert "This may be a mistake: retry_when does not look at the status" in await browser.text(page)

    visit(app, story)


def test_a_name_that_is_taken_is_told_beside_it(app: App) -> None:
    async def story(browser: Visitor) -> None:
        await add(browser)
        for name in ("hook", "mail.send"):
            refused = await send(browser, *(await filled_in(browser, "/new-task", task=name, url=URL)))
            assert refused.status_code == 422
            assert 'id="wrong-task"' in refused.text
            assert dict(fields_of(refused.text))["task"] == name

    visit(app, story)


def test_the_second_editor_is_told_who_changed_what_and_keeps_what_was_typed(app: App, tokens: Tokens) -> None:
    tokens.add("ann", "admin").add("bob", "admin")

    async def story(browser: Visitor) -> None:
        await browser.sign_in("ann-token")
        headers = {"authorization": "Bearer ann-token"}
        added = await browser.client.post("/v1/tasks", json={"task": "hook", "settings": HIDDEN}, headers=headers)
        assert added.status_code == 201
        ann = await filled_in(browser, delay="20m", secrets="new-" * 8)
        await browser.sign_in("bob-token")
        bob = await filled_in(browser, delay="30m", owner="bob")
        await browser.sign_in("ann-token")
        # Each session has its own proof.
        ann[1][0] = ("csrf", await browser.proof())
        assert (await send(browser, *ann)).status_code == 303
        await browser.sign_in("bob-token")
        bob[1][0] = ("csrf", await browser.proof())
        refused = await send(browser, *bob)
        assert refused.status_code == 412
        page = refused.text
        assert re.search(r"<b>ann</b> \(console\): (<code>(delay|secrets)</code> ){2}", page)
        assert re.search(r'id="now-delay">It is now: <code>20m</code>', page)
        assert 'id="now-secrets">' in page
        assert 'id="now-owner"' not in page
        assert stored(app)["delay"] == "20m"
        again = fields_of(page)
        assert ("delay:setting", "30m") in again
        assert ("owner:setting", "bob") in again
        # Saved again, it is meant.
        assert (await send(browser, action_of(page), again)).status_code == 303
        after = stored(app)
        assert (after["delay"], after["owner"]) == ("30m", "bob")

    visit(app, story, tokens)


def test_changes_that_nobody_was_told_of_are_told_after_another_error_too(app: App, tokens: Tokens) -> None:
    tokens.add("ann", "admin").add("bob", "admin", queues='["mail"]')
    headers = {"authorization": "Bearer ann-token"}

    async def story(browser: Visitor) -> None:
        task = {"task": "hook", "settings": {**HIDDEN, "queue": "mail"}}
        assert (await browser.client.post("/v1/tasks", json=task, headers=headers)).status_code == 201
        await browser.sign_in("bob-token")
        form = await filled_in(browser, queue="other")
        edited = await browser.client.patch("/v1/tasks/hook", json={"owner": "ann"}, headers=headers)
        assert edited.status_code == 200
        refused = await send(browser, *form)
        assert refused.status_code == 403
        assert ("queue:setting", "other") in fields_of(refused.text)
        assert (await send(browser, action_of(refused.text), typed_over(refused.text, queue="mail"))).status_code == 412
        assert stored(app)["owner"] == "ann"

    visit(app, story, tokens)


def test_what_was_typed_outlives_the_task(app: App) -> None:
    async def story(browser: Visitor) -> None:
        await add(browser)
        form = await filled_in(browser, owner="ann")
        assert (await browser.client.delete("/v1/tasks/hook")).status_code == 200
        gone = await send(browser, *form)
        assert gone.status_code == 404
        assert 'name="owner:setting"' not in gone.text
        assert action_of(gone.text) == "/tasks"
        assert dict(fields_of(gone.text))["task"] == "hook"
        assert dict(fields_of(gone.text))["settings.owner:setting"] == "ann"

    visit(app, story)


def test_only_a_task_of_the_store_has_a_form(app: App, tokens: Tokens) -> None:
    tokens.add("ann", "admin")

    async def story(browser: Visitor) -> None:
        await browser.sign_in("ann-token")
        for path, status in (("/tasks/mail.send/edit", 409), ("/tasks/nothing/edit", 404)):
            assert (await browser.get(path)).status_code == status
        headers = {"authorization": "Bearer ann-token"}
        await browser.client.post("/v1/tasks", json={"task": "hook", "settings": HIDDEN}, headers=headers)
        assert "/tasks/hook/edit" in await browser.text("/tasks/hook")
        await browser.sign_in("reader-token")
        assert "/tasks/hook/edit" not in await browser.text("/tasks/hook")
        for path in ("/new-task", "/tasks/hook/edit"):
            page = await browser.text(path)
            assert 'name="csrf"' not in page
            assert "Only an administrator" in page

    visit(app, story, tokens)
