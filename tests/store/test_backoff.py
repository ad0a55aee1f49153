"""What the log has of a store that is away: that it is, and once it is back, for how long it was."""

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import tarry
from tarry.store.shared.backoff import SAY_AGAIN, SAY_FIRST, Backoff

log = logging.getLogger("tarry.worker")
CLASSES = ("Backoff", "OutageLog")


@pytest.fixture
def backoff(caplog: pytest.LogCaptureFixture) -> Backoff:
    caplog.set_level(logging.INFO, "tarry")
    return Backoff(log)


def test_who_logs_an_outage_logs_its_end(backoff: Backoff, caplog: pytest.LogCaptureFixture) -> None:
    assert backoff.fail(100.0)
    assert not backoff.fail(101.0)
    backoff.succeed(103.25)
    backoff.succeed(104.0)
    assert caplog.messages == ["the store is back after 3.2 s"]


def test_without_an_outage_there_is_no_end(backoff: Backoff, caplog: pytest.LogCaptureFixture) -> None:
    backoff.succeed(100.0)
    assert caplog.messages == []


def test_what_comes_and_goes_fills_no_log(backoff: Backoff, caplog: pytest.LogCaptureFixture) -> None:
    said = 0
    for moment in range(1000):
        said += backoff.fail(moment)
        backoff.succeed(moment + 0.5)
    assert said == 1000 / SAY_FIRST
    assert caplog.messages == ["the store is back after 0.5 s"] * said


def test_an_outage_that_goes_on_is_logged_seldom(backoff: Backoff, caplog: pytest.LogCaptureFixture) -> None:
    said = [moment for moment in range(200) if backoff.fail(moment)]
    assert said == [0, SAY_AGAIN, 2 * SAY_AGAIN, 3 * SAY_AGAIN]
    backoff.succeed(200.0)
    assert caplog.messages == ["the store is back after 200.0 s"]


def test_one_that_begins_soon_after_another_is_logged_if_it_lasts(backoff: Backoff) -> None:
    assert backoff.fail(0.0)
    backoff.succeed(1.0)
    said = [moment for moment in range(2, 30) if backoff.fail(moment)]
    assert said == [SAY_FIRST]


def test_what_another_has_logged_has_no_line_here(backoff: Backoff, caplog: pytest.LogCaptureFixture) -> None:
    assert not backoff.fail(0.0, is_known=True)
    backoff.succeed(1.0)
    assert caplog.messages == []
    assert not backoff.fail(2.0, is_known=True)
    assert backoff.fail(3.0), "known only then"
    backoff.succeed(4.0)
    assert caplog.messages == ["the store is back after 2.0 s"]


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name in (getattr(node.func, "id", ""), getattr(node.func, "attr", "")):
            yield node


def decisions(tree: ast.AST) -> Iterator[ast.AST]:
    """What decides or is kept: of these values something depends."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            yield node.test
        elif isinstance(node, ast.Assign):
            yield node.value


def test_all_who_log_that_a_store_is_away_log_that_it_is_back() -> None:
    """Whoever asks whether to log a failure gives the log for the end of the outage."""
    askers, silent = set(), set()
    for path in Path(tarry.__file__).parent.rglob("*.py"):
        source = path.read_text()
        if path.name == "backoff.py" or not any(f"{name}(" in source for name in CLASSES):
            continue
        tree = ast.parse(source)
        made = [call for name in CLASSES for call in calls(tree, name)]
        if any(call for test in decisions(tree) for call in calls(test, "fail")):
            askers.add(path.stem)
            silent |= {path.stem for call in made if not call.args}
    assert askers >= {"exchanger", "held_leases", "chores", "cron", "claim_loop", "coordinator", "waiting", "shard"}
    assert silent == set()
