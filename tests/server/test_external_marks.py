"""Marks of queues that programs outside use: set before their jobs are there, and bounded."""

import time

import pytest

from tarry.model.duration import HOUR, SECOND
from tarry.server import external_marks
from tarry.server.external_marks import NEW_MOST, ExternalMarks
from tarry.store.memory.store import MemoryStore
from tarry.worker.external_queues import MARKED_FOR, PREFIX, RENEWED_EVERY, TRIED_FOR

NAMES = [f"q{n}" for n in range(36_000)]


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, in microseconds."""
    passed = [HOUR]
    monkeypatch.setattr(external_marks, "elapsed", lambda: passed[0])
    return passed


def until(store: MemoryStore, queue: str) -> int:
    return int(store.kv_list(PREFIX).get(f"{PREFIX}{queue}", b"0"))


def test_who_tries_names_fills_neither_the_store_nor_the_time(
    passed: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    store, marks = MemoryStore(), ExternalMarks(lambda: ())
    began = time.process_time()
    for at in range(0, len(NAMES), 10):
        marks.mark(store, NAMES[at : at + 10], 0)
    assert time.process_time() - began < 3
    assert len(store.kv_list(PREFIX)) == NEW_MOST
    assert len(caplog.records) == 1
    # What has jobs for them is marked all the same.
    marks.note_used({"mail"})
    marks.mark(store, ["mail"], 0)
    assert until(store, "mail") == MARKED_FOR
    passed[0] += HOUR
    marks.mark(store, ["late"], 0)
    assert until(store, "late") == TRIED_FOR
    assert len(marks._due) <= NEW_MOST


def test_a_queue_without_jobs_lapses_soon_and_one_with_jobs_does_not(passed: list[int]) -> None:
    store, marks = MemoryStore(), ExternalMarks(lambda: {"own"})
    marks.mark(store, ["mail", "own"], 0)
    assert (until(store, "mail"), until(store, "own")) == (TRIED_FOR, 0)
    marks.note_used({"mail"})
    marks.mark(store, ["mail"], SECOND)
    assert until(store, "mail") == SECOND + MARKED_FOR
    # Another process, whose clients never got a job there, does not shorten it.
    ExternalMarks(lambda: ()).mark(store, ["mail"], 2 * SECOND)
    assert until(store, "mail") == SECOND + MARKED_FOR
    passed[0] += RENEWED_EVERY
    marks.mark(store, ["mail"], RENEWED_EVERY)
    assert until(store, "mail") == RENEWED_EVERY + MARKED_FOR


def test_a_queue_that_is_asked_for_all_the_time_stays_marked() -> None:
    assert RENEWED_EVERY < TRIED_FOR
