"""For the tests of the pytest plugin."""

import weakref

import pytest

from tarry import app as app_module


@pytest.fixture(autouse=True)
def _apps_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Are left out: some live as long as the process, and their schedules would tick here."""
    kept = [app for app in list(app_module._apps) if not any(task.schedules for task in app.tasks.values())]
    monkeypatch.setattr(app_module, "_apps", weakref.WeakSet(kept))
