"""`reserve-job`: takes one job by its id, in one call of the store."""

from collections.abc import Callable

from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import NotPossible
from tarry.server.beanstalk import job_mapping
from tarry.server.beanstalk.shared import BeanstalkDoor
from tarry.server.given_jobs import GivenJobs
from tarry.store.rules.base import HIGH, Store, Want
from tarry.store.shards.sharded import ShardedStore

LEASE = 15 * SECOND


def reserve_job(door: BeanstalkDoor, id: bytes, owner: str, allows: Callable[[str], bool]) -> Job | None:
    """The job, which `owner` holds from now on; None if it is reserved already, there is none, or its tube is not
    allowed. Blocks. StoreError.

    A store gives no job by its id. So one call makes this job the first of its tube and takes the first.
    """
    store, job = _find(door.client.store, id)
    # A paused tube gives nothing, and its job would be left at the front.
    if job is None or not allows(job.queue) or store.queues().get(job.queue, False):
        return None
    now = door.now()
    try:
        change = job_mapping.move_to_front(job, now)
    except NotPossible:
        return None
    with door.claims.reservation() as hold:
        answer = store.exchange([change], [Want(job.queue, HIGH, 1)], 1, owner, LEASE, now)
        others = [job_mapping.give_back(other, now) for other in answer.jobs if other.id != id]
        if others:
            store.apply(others, now)
        taken = next((taken for taken in answer.jobs if taken.id == id), None)
        made = None if taken is None else _complete(door, store, taken, now)
        if made is not None:
            # At its end the server gives back what it had held until then; the keeper, what came later.
            hold(made)
    return made


def _complete(door: BeanstalkDoor, store: Store, job: Job, now: int) -> Job | None:
    """The job with all of its arguments; None if these cannot be had, and then its attempt has ended."""
    made = GivenJobs(store, door.client.rules).complete(job, now)
    if isinstance(made, Job):
        return made
    store.apply([lifecycle.after(job, made, door.rules(job), now)], now)
    return None


def _find(store: Store, id: bytes) -> tuple[Store, Job | None]:
    """The job, and the store that has it: of several shards each has a first of its own."""
    for each in store.stores if isinstance(store, ShardedStore) else (store,):
        job = each.get([id])[0]
        if job is not None:
            return each, job
    return store, None
