"""What the applications of the tests have in common."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tarry import App, current_job
from tarry.web import JobEvents

LIMIT = 60.0


def walk(gates: str, steps: int) -> str:
    """Goes a step as soon as there is the file that allows it, and tells so."""
    for step in range(1, steps + 1):
        end = time.monotonic() + LIMIT
        while not Path(gates, str(step)).exists():
            assert time.monotonic() < end
            time.sleep(0.005)
        current_job().progress(step / steps, f"step {step}")
    return "there"


def declare(app: App) -> Any:
    """The task; and what tells that the app was closed."""

    @app.on_close
    def tell() -> None:
        Path("closed").touch()

    return app.task(name="walk")(walk)


def make_events(app: App, make: Callable[..., JobEvents] = JobEvents) -> JobEvents:
    """Of which only three may follow; those that are gone are found at once."""
    return make(app, most=3, lasts="60s", heartbeat=0.1)
