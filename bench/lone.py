"""One worker, or one keeper, with no master above it: `python -m bench.lone SETTINGS worker|keeper`."""

import importlib
import signal
import sys
import time
from pathlib import Path

from bench.app import app
from bench.place import APP
from tarry.config.config import load
from tarry.keeper.chores import Keeper
from tarry.worker.worker import Worker, WorkerSettings


def main(settings: str, role: str) -> None:
    """Works until killed."""
    config = load(Path(settings), {})
    # One that adds to the tasks of ours.
    importlib.import_module((config.app or APP).partition(":")[0])
    app.configure(config)
    # What is measured ends as a crash would end it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    store = app.open_store(durable=False)
    if role == "keeper":
        keeper = Keeper(store, rules=app.rules)
        while True:
            time.sleep(keeper.tick())
    pool = app.config.pools["default"]
    worker = Worker(store, app.tasks, WorkerSettings(threads=pool.threads, coroutines=pool.async_), rules=app.rules)
    worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
