"""The app under measure with tasks under limits. Only its workers declare them, so that other measures are without."""

from bench.app import app
from bench.board import BOARD
from tarry import Task

NEVER = 100_000_000
"""More than ever start at once, or in a second."""


def _noop(i: int, body: str) -> None:
    BOARD.passed(i)


def _by_key(name: str, keys: int, limit: int | None) -> Task[[int, str], None]:
    return app.task(name=name, limit_by=lambda i: str(i % keys), limit=limit)(_noop)


LIMITED: dict[str, Task[[int, str], None]] = {
    "a limit that is not reached": app.task(name="limited", limit=1000)(_noop),
    "a rate that is not reached": app.task(name="rated", rate=f"{NEVER}/s")(_noop),
    "1,000 keys that take turns": _by_key("turns", 1000, None),
    "10 keys, 10 at once of each": _by_key("keys-10", 10, 10),
    "1,000 keys, 10 at once of each": _by_key("keys-1000", 1000, 10),
    "50,000 keys, 10 at once of each": _by_key("keys-50000", 50_000, 10),
}
"""Tasks that do nothing, by what limits them."""
