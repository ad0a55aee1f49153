"""A process that writes to a SQLite store, begins its log anew in every manner, and opens it again, until it is killed:
`python -m tests.store.wal_writer PATH SHARED`. It prints a dot for each round; what goes wrong ends it."""

import os
import random
import sys
from contextlib import closing, suppress
from pathlib import Path

from tarry import errors
from tarry.store.conformance.cases.jobs import put
from tarry.store.sqlite.store import SqliteStore
from tests import seeds

# Of its own: writers that did the same at the same time would meet in fewer states.
chance = random.Random(seeds.seed() + os.getpid())


def main() -> None:
    path, shared = sys.argv[1:]
    while True:
        store = SqliteStore(Path(path), durable=False, shared=shared)
        # On a busy machine the others may have the lock for longer than anybody waits: no alarm either.
        with suppress(errors.StoreBusy):
            serve(store)
        print(".", end="", flush=True)


def serve(store: SqliteStore) -> None:
    with closing(store):
        store._db.execute(f"PRAGMA wal_autocheckpoint={chance.choice([0, 5, 20, 2000])}")
        for _ in range(chance.randrange(5)):
            write(store)


def write(store: SqliteStore) -> None:
    try:
        put(store, chance.choice([1, 1, 1, 50]))
        mode = chance.choice(["PASSIVE", "FULL", "RESTART", "TRUNCATE", None])
        if mode:
            store._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
    except errors.StoreBusy:
        return


if __name__ == "__main__":
    main()
