"""Requests gather until those who were answered have asked again."""

import threading

import pytest

from tarry.client import group_commit
from tarry.client.group_commit import BatchWindow

LIMIT = 30.0


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> BatchWindow:
    """Waits for as long as a test may."""
    monkeypatch.setattr(group_commit, "GATHER", LIMIT)
    return BatchWindow()


def test_it_ends_when_all_have_asked_again(endless: BatchWindow) -> None:
    endless.expect(3)
    came: list[bool] = []
    waiting = threading.Thread(target=lambda: came.append(endless.wait()))
    waiting.start()
    for count in (1, 2):
        endless.note(count)
    waiting.join(LIMIT)
    assert came == [True]


def test_those_who_ask_before_it_waits_count(endless: BatchWindow) -> None:
    endless.expect(2)
    endless.note(5)
    assert endless.wait()


def test_it_ends_though_some_do_not_ask() -> None:
    gathered = BatchWindow()
    gathered.expect(2)
    gathered.note(1)
    assert not gathered.wait()


def test_those_of_the_call_before_do_not_count() -> None:
    gathered = BatchWindow()
    gathered.expect(1)
    gathered.note(1)
    gathered.expect(2)
    gathered.note(1)
    assert not gathered.wait()
