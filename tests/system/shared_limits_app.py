"""The app of tests/system/test_shared_limits.py, which copies it beside its settings: tasks under limits, and who puts
their jobs."""

import contextlib
import random
import time
from collections.abc import Collection
from pathlib import Path

from tarry import App, Retry, StoreError
from tarry.testing.ledger import Ledger

HERE = Path(__file__).parent
chance = random.Random(1)
app = App(retry=Retry(8, backoff="fixed", base=0.2))
history = Ledger(HERE.parent / "history")
app.middleware("run")(history.run)


@app.task(limit=4)
def plain() -> None:
    time.sleep(chance.uniform(0, 0.3))


@app.task(limit=2)
def lasting() -> None:
    # Longer than what is left of a lease: where its store is away, it is ended before another one may begin.
    time.sleep(8)


@app.task(limit_by=lambda who: who, limit=1, limit_all=3)
def keyed(who: str) -> None:
    time.sleep(chance.uniform(0, 0.2))


def put(tasks: Collection[str]) -> None:
    """Puts jobs of these tasks, and tells the ledger of those that were acknowledged."""
    # More than half of what its limit lets run, so that half of it is too little.
    history.put(*plain.enqueue_many([()] * 2), task="app.plain")
    for who in (f"who{number}" for number in chance.sample(range(9), 2)):
        history.put(keyed.enqueue(who), task="app.keyed", lane=who)
    if "app.lasting" in tasks and chance.random() < 0.03:
        history.put(lasting.enqueue(), task="app.lasting")


def produce(tasks: Collection[str]) -> None:
    """Puts jobs until the file `over` is there."""
    while not (HERE.parent / "over").exists():
        time.sleep(chance.uniform(0.05, 0.15))
        # Nothing was acknowledged then: whether it is stored does not matter here.
        with contextlib.suppress(StoreError):
            put(tasks)
