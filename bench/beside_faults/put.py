"""`python -m bench.beside_faults.put MODULE`: puts jobs, in the environment of a project.

Reads a JSON list of [job, deed, seconds, delay or null], and writes each that was acknowledged to the ledger.
"""

import importlib
import json
import sys

from bench.beside_faults import tasks


def main(module: str) -> None:
    app = importlib.import_module(module)
    for job, deed, seconds, delay in json.load(sys.stdin):
        begun = tasks.now()
        app.put(job, deed, seconds, delay)
        due = begun + int(delay * 1e6) if delay is not None else 0
        tasks.write("put", job, at=tasks.now(), due=due, task=deed)


if __name__ == "__main__":
    main(sys.argv[1])
