"""The app of a soak, beside that of the storm, whose tasks it adds to."""

import importlib
import time
from pathlib import Path
from typing import Any

from tarry.keeper import cron
from tarry.store.rules.history import sums
from tarry.store.sql import sql_store
from tarry.store.sqlite.store import SqliteStore

HERE = Path(__file__).parent
storm: Any = importlib.import_module("app")
app, history = storm.app, storm.history

# What the history keeps for a day, a month and two years would grow all the time of a soak, as would the owners that
# are gone, each of which is known for a day.
sums.KEPT.update({sums.MINUTES: 300, sums.HOURS: 3600, sums.DAYS: 86400})
sql_store.DAY = 300_000_000
# A job of a schedule is kept as long as it holds the key of its tick.
cron.KEY_KEPT_FOR = "120s"


def now() -> int:
    """The time of the ledgers, and of a store in a file: this host's, and by how much the soak has set it ahead."""
    time_of_host = time.time_ns() // 1000
    return time_of_host + int((HERE / "ahead").read_text())


SqliteStore.time = lambda self: now()  # type: ignore[method-assign]
history.now = now


@app.task(queue="other", rate="4/s")
async def rated(number: int) -> int:
    return number


@app.task(queue="other", timeout=1, retry=None)
def too_long() -> None:
    # In pieces, so that it can be interrupted: else its worker is killed, and none gets old.
    for _ in range(600):
        time.sleep(0.05)


@app.task(queue="other", cron="*/5 * * * * *")
def tick() -> None:
    time.sleep(0.01)
