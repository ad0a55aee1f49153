"""The same change for many jobs: page by page, so that neither memory nor a transaction grows with their number."""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from tarry.client.client import Client
from tarry.client.witness import Witness, what
from tarry.model.change import Change
from tarry.model.job import Job
from tarry.model.lifecycle import NotPossible
from tarry.store.base import Query

PAGE = 1000


def matching(client: Client, query: Query) -> Iterator[list[Job]]:
    """All jobs that match, in pages, by id."""
    after = query.after
    while True:
        jobs = client.store.find(replace(query, after=after, limit=PAGE))
        if not jobs:
            return
        yield jobs
        after = jobs[-1].id


def changed(client: Client, jobs: Sequence[Job], rule: Callable[[Job, int], Change]) -> int:
    """Makes the rule's change of each of these; answers of how many. Those that the rule refuses, or that changed
    since they were seen, stay as they are."""
    now = client.clock.now()
    changes: list[Change] = []
    for job in jobs:
        try:
            changes.append(rule(job, now))
        except NotPossible:
            continue
    made = client.store.apply(changes, now) if changes else []
    if client.witness is not None:
        _tell(client.witness, jobs, [change for change, valid in zip(changes, made, strict=True) if valid])
    return sum(made)


def _tell(witness: Witness, jobs: Sequence[Job], made: Sequence[Change]) -> None:
    """All are made by one rule."""
    ids = {change.id for change in made}
    if made:
        witness.done_by_hand([job for job in jobs if job.id in ids], what(made[0]))
