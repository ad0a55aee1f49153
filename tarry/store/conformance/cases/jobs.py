"""Helpers for the tests of the promises: jobs in any state, and functions that claim and settle them."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import HELD, Job, State
from tarry.model.lifecycle import DEFAULT, Rules
from tarry.model.outcome import Cancelled, Lost, Outcome, Raised, Released, Returned, Snoozed
from tarry.model.retry import Retry
from tarry.store.rules.base import BANDS, Store, Want

# A fixed time: no verb looks at the clock of the process, so the tests need no real time.
NOW = 1_800_000_000 * SECOND
LEASE = 30 * SECOND
PLENTY = 10**15
"""More bytes than any test uses."""
RETRY = Rules(retry=Retry(5, base=10))
EVERYTHING = [Want("default", band, 10**6) for band in BANDS]
FINISHED = (State.DONE, State.DEAD, State.CANCELLED)
WAITING = (State.SCHEDULED, State.READY)
ALONE = (*WAITING, State.RUNNING, *FINISHED)
"""The states of a job that is in no flow."""
FAILED = Raised(b'{"type":"ValueError","message":"no","traceback":""}', ("ValueError", "Exception"))

ENDS: list[Outcome] = [Returned(), Returned(b'"good"'), FAILED, Cancelled("no")]
AGAIN: list[Outcome] = [Released(), Lost(), Lost(on=True), Snoozed(0), Snoozed(SECOND)]
"""Outcomes of an attempt. ENDS: the job finishes, unless a rule retries it; AGAIN: the job comes back."""
FORGETS = Rules(keep_done=0, keep_dead=0)


def made(store: Store, count: int = 1, **fields: Any) -> list[Job]:
    """New jobs, not inserted; each with an id from the store, and in the state that its due time requires."""
    task, key, lane = str(fields.get("task", "mail")), fields.get("key"), fields.get("lane")
    start = Job(b"", task, b"{}", due=NOW, state_since=NOW, key_held_until=0 if key is None else HELD)
    job = replace(start, **fields)
    job = replace(job, state=lifecycle.initial_state(job.due, NOW))
    return [replace(job, id=store.new_id(task, key, lane)) for _ in range(count)]


def put(store: Store, count: int = 1, **fields: Any) -> list[Job]:
    """New jobs, inserted."""
    jobs = made(store, count, **fields)
    assert store.insert(jobs) == [job.id for job in jobs]
    return jobs


def taken(store: Store, limit: int = 10**6, owner: str = "ann", now: int = NOW) -> list[Job]:
    """Claims what is ready in the default queue, the high band first."""
    return store.claim(EVERYTHING, limit, owner, LEASE, now)


def running(store: Store, count: int = 1, owner: str = "ann", **fields: Any) -> list[Job]:
    """New jobs, inserted and claimed; fails if others are ready too."""
    jobs = put(store, count, **fields)
    claimed = taken(store, owner=owner)
    assert {job.id for job in claimed} == {job.id for job in jobs}
    return claimed


def settle(store: Store, job: Job, outcome: Outcome, rules: Rules = DEFAULT, now: int = NOW) -> Job:
    """Ends a running job's attempt with this outcome; returns what the job became."""
    assert store.apply([lifecycle.after(job, outcome, rules, now)], now) == [True]
    return seen(store, job)


def seen(store: Store, job: Job) -> Job:
    """The job as the store has it now."""
    (found,) = store.get([job.id])
    assert found is not None
    return found


def in_state(store: Store, state: State, **fields: Any) -> Job:
    """A new job, brought into that state by the usual verbs."""
    if state is State.SCHEDULED:
        return put(store, due=NOW + HOUR, **fields)[0]
    if state is State.READY:
        return put(store, **fields)[0]
    (job,) = running(store, **fields)
    match state:
        case State.DONE:
            return settle(store, job, Returned(b"1"))
        case State.DEAD:
            return settle(store, job, FAILED)
        case State.CANCELLED:
            assert store.apply([lifecycle.cancel(job, DEFAULT, NOW)], NOW) == [True]
    return seen(store, job)


def outcomes(store: Store, jobs: list[Job], outcome: Outcome, rules: Rules = DEFAULT, now: int = NOW) -> list[bool]:
    """Ends the attempts of running jobs with this outcome, in one call."""
    return store.apply([lifecycle.after(job, outcome, rules, now) for job in jobs], now)


def side_by_side(count: int, work: Callable[[int], None], over: threading.Event | None = None) -> None:
    """Runs `work` in `count` threads at once; an error in one is raised here, and sets `over` for the others."""
    errors: list[BaseException] = []

    def tried(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)
            if over:
                over.set()

    # An exception in a thread would only be printed, and the test would pass.
    threads = [threading.Thread(target=tried, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def ids(jobs: Sequence[Job]) -> list[bytes]:
    """The ids of the jobs, in their order."""
    return [job.id for job in jobs]


class Promises:
    """What the test class of a store may override, beside the `store` fixture."""

    shards = 1
    """How many stores it consists of. Each keeps a part of the bytes and promotes due jobs by itself."""

    has_flows = True
    """Whether it keeps flows and signals."""

    own_clock = False
    """Whether `time()` is the clock of a server, not that of the process."""

    def together(self, store: Store, count: int) -> list[bytes]:
        """Growing ids, for jobs without a key, that belong to one shard."""
        # Order is promised only within a shard.
        return [store.new_id("mail", None) for _ in range(count)]

    def miscount(self, store: Store, name: str, running: int) -> bool:
        """Makes the level of that name say that so many jobs run, behind the store's back. False: not possible."""
        return False

    def count_labels(self, store: Store) -> int | None:
        """How many labels of jobs are in its index; None: that cannot be told."""
        return None

    def lose(self, store: Store, job: Job) -> bool:
        """Deletes a blocked job behind the store's back. False: not possible."""
        return False

    def reopen(self, store: Store) -> Store | None:
        """The same jobs in a store opened anew; None: this kind of store keeps nothing after it is closed."""
        return None
