"""That the second process sees what is wrong: a ledger that says what is not so."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarry.testing.history_check import Ended, HistoryEvent, Put, Started
from tests.kill_points.taking_over import Told, take_over
from tests.kill_points.workload import START, on_one, urls_of

GHOST = "01a2243d-b800-7000-8000-078bf4ab2e0d"


def _line(event: HistoryEvent) -> str:
    return msgspec.json.encode(event).decode()


def _first_start(told: Told) -> Started:
    return next(event for event in told.history if isinstance(event, Started))


def _attempt(told: Told, **fields: Any) -> str:
    """Another one of the first job, as long as nothing."""
    start = msgspec.structs.replace(_first_start(told), **fields)
    return f"{_line(start)}\n{_line(Ended(start.job, start.epoch, start.owner, start.at, 'failed'))}"


def _started_again(told: Told) -> str:
    return _attempt(told, owner="another")


def _started_later(told: Told) -> str:
    return _attempt(told, epoch=9)


FALSE: dict[str, tuple[Callable[[Told], str], str]] = {
    "acknowledged": (lambda _: f"put ghost {GHOST}", "ghost was acknowledged, and is not there"),
    "never run": (lambda told: f"put ghost {told.puts['one']}", "ghost was acknowledged, and never ran to its end"),
    "refused": (lambda _: "refused one", "one was surely not stored, by the error, and ran"),
    "unnamed": (lambda _: "unnamed StoreError no name", "an error names no file: StoreError no name"),
    "run often": (lambda _: "start one\nstart one", "one ran 3 times"),
    "flow": (lambda _: f"flow {GHOST}", f"the flow ['{GHOST}'"),
    "before its parents": (lambda _: "start node-e", "node e began before node d had ended"),
    "lost": (lambda _: _line(Put(GHOST, START)), "lost: "),
    "twice in an epoch": (_started_again, "writer: "),
    "older in the store": (_started_later, "state: "),
}
"""By what is wrong: the line that says it, given what the ledger says so far, and the sentence about it."""


@pytest.fixture(scope="module")
def told_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("told")
    ledger = os.open(place / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    on_one(place, urls_of("file", place), ledger)
    os.close(ledger)
    return place


def _copied(told_place: Path, directory: Path) -> Path:
    # What processes share while they run is not part of what one leaves.
    return Path(shutil.copytree(told_place, directory / "place", ignore=shutil.ignore_patterns("*-board")))


def _taken_over(place: Path, may_lose_claims: bool = False) -> list[str]:
    return take_over(place, urls_of("file", place), may_lose_claims)


def test_nothing_is_wrong_where_nothing_is(told_place: Path, tmp_path: Path) -> None:
    assert _taken_over(_copied(told_place, tmp_path)) == []


@pytest.mark.parametrize("what", FALSE)
def test_what_is_not_as_the_ledger_says_is_told(what: str, told_place: Path, tmp_path: Path) -> None:
    place = _copied(told_place, tmp_path)
    make, sentence = FALSE[what]
    ledger = place / "ledger"
    # First, since the order of the lines is that of what happened.
    ledger.write_text(f"{make(Told(ledger))}\n{ledger.read_text()}")
    assert [one for one in _taken_over(place) if sentence in one] != []


def test_claims_may_be_lost_where_power_was_cut(told_place: Path, tmp_path: Path) -> None:
    place = _copied(told_place, tmp_path)
    ledger = place / "ledger"
    told = Told(ledger)
    ledger.write_text(f"{_started_again(told)}\n{_started_later(told)}\n{ledger.read_text()}")
    assert _taken_over(place, may_lose_claims=True) == []
