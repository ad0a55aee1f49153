"""Editing a registered task: hidden values stay, and nobody overwrites what somebody else has changed meanwhile."""

import threading
from typing import Any

import pytest

from tarry.client.acting import Actor, acting
from tarry.errors import StoreBusy
from tarry.push.endpoint import endpoint_cells
from tarry.push.endpoint.edits import EDITS_CELL, MOST_EDITS, TaskChanged
from tarry.push.endpoint.endpoint_settings import EndpointError, version_of
from tarry.push.http.address_guard import AddressGuard
from tarry.store.rules.base import Store
from tests.push.fixture import HERE, DeliveryFixture

GUARD = AddressGuard(HERE.allow)
URL = "http://127.0.0.1:8000/hook"
RAW, OLD = "raw-secret-" * 3, "old-secret-" * 3


def settings(store: Store) -> dict[str, Any]:
    cell = store.kv_get(endpoint_cells.TASK_CELL + "hook")
    assert cell is not None
    return endpoint_cells.decode_settings(cell)


def version(store: Store) -> str:
    return version_of(settings(store))


HIDDEN: dict[str, Any] = {
    "url": f"{URL}?key=sesame&n={{n}}",
    "headers": {"Authorization": "Bearer sesame", "x-shop": "eu"},
    "secrets": [RAW, "env:KEY", OLD],
    "alert": ["ops@example.org", "https://hooks.example/a", "https://hooks.example/b"],
}


def test_what_is_sent_back_as_it_was_shown_stays(any_delivery: DeliveryFixture) -> None:
    store = any_delivery.store()
    places = ("env:KEY",)
    shown = endpoint_cells.add(store, "hook", HIDDEN, GUARD, places).display_settings()
    assert "sesame" not in str(shown)
    endpoint_cells.edit(store, "hook", shown, GUARD, places)
    assert settings(store) == HIDDEN
    endpoint_cells.replace(store, "hook", {**shown, "delay": "1h"}, GUARD, places)
    assert settings(store) == {**HIDDEN, "delay": "1h"}


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({"url": "http://127.0.0.1:8000/new?..."}, {"url": "http://127.0.0.1:8000/new?key=sesame&n={n}"}),
        ({"url": "http://127.0.0.1:8000/new"}, {"url": "http://127.0.0.1:8000/new"}),
        ({"headers": {"authorization": "***", "b": "1"}}, {"headers": {"authorization": "Bearer sesame", "b": "1"}}),
        ({"headers": None}, {"headers": None}),
        ({"secrets": ["new-" * 8, "***1", "***3"]}, {"secrets": ["new-" * 8, RAW, OLD]}),
        ({"secrets": ["***3", "***", "***"]}, {"secrets": [OLD, RAW, OLD]}),
        ({"secrets": "***3"}, {"secrets": OLD}),
        ({"secret": "***"}, {"secret": RAW, "secrets": None}),
        ({"secret": ["***1", "env:KEY", "***3"]}, {}),
        ({"secret": "new-" * 8}, {"secret": "new-" * 8, "secrets": None}),
        ({"alert": ["https://hooks.example/...", "https://hooks.example/..."]}, {"alert": HIDDEN["alert"][1:]}),
        ({"alert": "https://hooks.example/..."}, {"alert": "https://hooks.example/a"}),
    ],
)  # fmt: skip
def test_some_are_kept_and_others_changed(
    delivery: DeliveryFixture, changes: dict[str, Any], after: dict[str, Any]
) -> None:
    store = delivery.store()
    endpoint_cells.add(store, "hook", HIDDEN, GUARD, ("env:KEY",))
    endpoint_cells.edit(store, "hook", changes, GUARD, ("env:KEY",))
    assert settings(store) == {key: value for key, value in {**HIDDEN, **after}.items() if value is not None}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", f"{URL}?..."),
        ("headers", {"authorization": "***"}),
        ("secret", "***"),
        ("secrets", ["***2"]),
        ("secrets", ["***0"]),
        ("alert", "https://hooks.example/..."),
    ],
)
def test_what_stands_for_nothing_is_refused(delivery: DeliveryFixture, field: str, value: Any) -> None:
    store = delivery.store()
    with pytest.raises(EndpointError, match="stands for a value that is kept") as refused:
        endpoint_cells.add(store, "hook", {"url": URL, field: value}, GUARD)
    assert refused.value.field == field
    endpoint_cells.add(store, "hook", {"url": URL}, GUARD)
    with pytest.raises(EndpointError, match=rf"^tasks.hook.{field}: .*stands for a value that is kept"):
        endpoint_cells.edit(store, "hook", {field: value}, GUARD)
    assert settings(store) == {"url": URL}


MOVED = ("http://127.0.0.1:8001/hook", "https://127.0.0.1:8000/hook", "http://localhost:8000/hook")


@pytest.mark.parametrize("url", MOVED)
@pytest.mark.parametrize(
    ("field", "value", "given"),
    [
        ("headers", {"Authorization": "Bearer sesame"}, {"authorization": "***"}),
        ("secret", RAW, "***"),
        ("secrets", [RAW, OLD], ["***1"]),
        ("url", f"{URL}?key=sesame", None),
        ("headers", {"Authorization": "env:KEY"}, {"authorization": "***"}),
        ("secret", "env:KEY", "***1"),
        ("secrets", ["env:KEY", "env:KEY"], ["***2"]),
    ],
)
def test_what_is_hidden_or_in_a_place_goes_to_no_other_host(
    delivery: DeliveryFixture, url: str, field: str, value: Any, given: Any
) -> None:
    """Whether it is left out of the changes or sent as it was shown; with the value itself it may go there."""
    store = delivery.store()
    places = ("env:KEY",)
    endpoint_cells.add(store, "hook", {"url": URL, field: value}, GUARD, places)
    before = settings(store)
    changes = [{"url": f"{url}?..."}] if field == "url" else [{"url": url}, {"url": url, field: given}]
    # A form sends all settings.
    writes = [endpoint_cells.edit] * len(changes) + [endpoint_cells.replace]
    for write, change in zip(writes, [*changes, changes[-1]], strict=True):
        with pytest.raises(EndpointError, match=r"was written for .*:8000, and the url is now of") as error:
            write(store, "hook", change, GUARD, places)
        assert error.value.field in (field, "secret")
        assert settings(store) == before
    written = {"url": f"{url}?key=sesame"} if field == "url" else {"url": url, field: value}
    endpoint_cells.edit(store, "hook", written, GUARD, places)
    endpoint_cells.edit(store, "hook", {"url": URL} if field == "url" else {"url": URL, field: None}, GUARD)
    assert "sesame" not in str(settings(store))
    assert RAW not in str(settings(store))


def test_the_second_of_two_editors_is_told_who_changed_what(any_delivery: DeliveryFixture) -> None:
    store = any_delivery.store()
    endpoint_cells.add(store, "hook", {"url": URL}, GUARD)
    seen = version(store)
    with acting(Actor("ann", "10.0.0.1", "console")):
        endpoint_cells.edit(store, "hook", {"url": f"{URL}/new", "owner": "ann"}, GUARD, seen=seen)
    between = version(store)
    endpoint_cells.set_enabled(store, "hook", enabled=False, configured=False)
    before = settings(store)
    with pytest.raises(TaskChanged, match=r"ann changed url, owner .* ago; .* changed enabled .* ago") as refused:
        endpoint_cells.edit(store, "hook", {"url": f"{URL}/mine"}, GUARD, seen=seen)
    first, second = refused.value.edits
    assert (first.by, first.address, first.via) == ("ann", "10.0.0.1", "console")
    assert (first.settings, first.version, second.settings) == (("url", "owner"), between, ("enabled",))
    assert abs(first.at - store.time() / 1e6) < 60
    with pytest.raises(TaskChanged) as later:
        endpoint_cells.replace(store, "hook", {"url": f"{URL}/mine"}, GUARD, seen=between)
    assert later.value.edits == (second,)
    assert settings(store) == before
    endpoint_cells.edit(store, "hook", {"url": f"{URL}/mine"}, GUARD, seen=version(store))
    assert settings(store)["url"] == f"{URL}/mine"


def test_of_many_editors_at_once_one_is_not_told(any_delivery: DeliveryFixture) -> None:
    store = any_delivery.store()
    endpoint_cells.add(store, "hook", {"url": URL}, GUARD)
    seen, told, start = version(store), list[str](), threading.Barrier(4, timeout=20)

    def edit(name: str) -> None:
        start.wait()
        try:
            endpoint_cells.edit(store, "hook", {"owner": name}, GUARD, seen=seen)
        except TaskChanged:
            told.append(name)

    threads = [threading.Thread(target=edit, args=(f"editor {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(told) == 3
    assert settings(store)["owner"] not in told


def test_an_edit_counts_also_if_it_cannot_be_noted(
    delivery: DeliveryFixture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = delivery.store()
    endpoint_cells.add(store, "hook", {"url": URL}, GUARD)

    def fail(*_: Any) -> None:
        raise StoreBusy("others write it all the time")

    monkeypatch.setattr("tarry.push.endpoint.edits.change_cell", fail)
    endpoint_cells.edit(store, "hook", {"owner": "ann"}, GUARD)
    assert settings(store)["owner"] == "ann"
    assert "who changed the HTTP task hook cannot be noted" in caplog.text


def test_what_is_known_of_edits_is_bounded_and_goes_with_the_task(delivery: DeliveryFixture) -> None:
    store = delivery.store()
    endpoint_cells.add(store, "hook", {"url": URL}, GUARD)
    for number in range(2 * MOST_EDITS):
        endpoint_cells.edit(store, "hook", {"priority": number}, GUARD)
    # One that changes nothing is none.
    endpoint_cells.edit(store, "hook", {"priority": 2 * MOST_EDITS - 1}, GUARD)
    with pytest.raises(TaskChanged) as refused:
        endpoint_cells.edit(store, "hook", {}, GUARD, seen="of long ago")
    assert len(refused.value.edits) == MOST_EDITS
    assert {edit.settings for edit in refused.value.edits} == {("priority",)}
    cell = store.kv_get(EDITS_CELL + "hook")
    assert store.kv_cas(EDITS_CELL + "hook", b"of a newer release", cell)
    with pytest.raises(TaskChanged, match="by whom is not known"):
        endpoint_cells.edit(store, "hook", {}, GUARD, seen="of long ago")
    endpoint_cells.remove(store, "hook")
    assert store.kv_get(EDITS_CELL + "hook") is None
