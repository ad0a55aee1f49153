"""Puts and ends jobs and sums them up, for as long as it lives: `python -m tests.store.history_writer URL`.

It writes a byte after each call. Every third job fails at first, and every fifth ends dead.
"""

import sys
from itertools import count

from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import DAY, HOUR
from tarry.model.job import Job
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Outcome, Raised, Returned
from tarry.model.retry import Retry
from tarry.store.opening import open_store
from tarry.store.rules.base import NORMAL, Want
from tarry.store.rules.ids import uuid7

RULES = Rules(retry=Retry(2, base=0.001), keep_done=30 * DAY, keep_dead=30 * DAY)
MOST = 100_000
"""Rounds, should nobody end it."""
numbers = count()


def ended(job: Job, now: int) -> Change:
    number = next(numbers)
    outcome: Outcome = Returned()
    if number % 5 == 0:
        outcome = Raised(b"{}", final=True, status=404)
    elif number % 3 == 0:
        outcome = Raised(b"{}", status=500)
    return lifecycle.after(job, outcome, RULES, now)


def main(url: str) -> None:
    store = open_store(url, durable=False)
    for _ in range(MOST):
        for number in (1, 2, 7):
            now = store.time()
            store.insert([Job(uuid7(), "mail", b"", due=now, state_since=now) for _ in range(number)])
            sys.stdout.write(".")
            sys.stdout.flush()
        jobs = store.claim([Want("default", NORMAL, 9)], 9, "ann", HOUR, store.time())
        now = store.time()
        store.exchange([ended(job, now) for job in jobs], [], 0, "ann", HOUR, now)
        sys.stdout.write(".")
        store.history.sum_up(now, 3)
        sys.stdout.write(".")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
