"""The same change for many jobs, page by page."""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from tarry.client.acting import sign_change
from tarry.client.client import Client, bring_forward_behind
from tarry.client.enqueue_listener import JobEvent
from tarry.model.change import Change
from tarry.model.job import Job
from tarry.model.lifecycle import NotPossible
from tarry.store.rules.base import Query, Store

# Bounds the memory and the transaction of a change, however many jobs match.
PAGE = 1000


def find_pages(store: Store, query: Query) -> Iterator[list[Job]]:
    """All jobs that match the query, in pages, by id."""
    after = query.after
    while True:
        jobs = store.find(replace(query, after=after, limit=PAGE))
        if not jobs:
            return
        yield jobs
        # By id, not by offset: a change may take jobs out of the query, and an offset would then skip others.
        after = jobs[-1].id


def change_jobs(client: Client, jobs: Sequence[Job], rule: Callable[[Job, int], Change], event: JobEvent) -> int:
    """Applies the rule to each job; returns how many were changed. A job stays as it is if the rule refuses, or if it
    changed since it was read. event: what the rule does, for the client's listener."""
    now = client.clock.now()
    changes: list[Change] = []
    for job in jobs:
        try:
            changes.append(sign_change(job, rule(job, now), event, now))
        except NotPossible:
            continue
    valid = client.store.apply(changes, now) if changes else []
    applied = [change for change, is_valid in zip(changes, valid, strict=True) if is_valid]
    ids = {change.id for change in applied}
    changed = [job for job in jobs if job.id in ids]
    if client.listener is not None and changed:
        client.listener.on_manual_change(changed, event)
    bring_forward_behind(client.store, changed, now)
    return len(applied)
