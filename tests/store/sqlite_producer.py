"""A producer in a process of its own: `python -m tests.store.sqlite_producer PATH`. For each line that it reads it
inserts one job, and prints `stored ID` or the class and text of the error."""

import sys

from tarry.errors import StoreError
from tarry.store.conformance.cases.jobs import put
from tarry.store.sqlite.store import SqliteStore

if __name__ == "__main__":
    store = SqliteStore(sys.argv[1])
    for _ in sys.stdin:
        try:
            print("stored", put(store)[0].id.hex(), flush=True)
        except StoreError as error:
            print(type(error).__name__, error.stored, error, flush=True)
