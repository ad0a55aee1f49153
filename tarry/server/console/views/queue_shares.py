"""Who fills a queue: labels and keys of tasks that most of its ready jobs have."""

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from tarry.keeper.waiting_facts import StoreReader
from tarry.model.job import Job, State
from tarry.model.limit import EACH
from tarry.model.values.console_paths import jobs_path, limit_keys_path
from tarry.store.rules.base import Query

LOOKED_AT = 1000
"""Ready jobs of the queue, of those that the store lists first."""
_PART = 0.2
"""The least part of these that is worth a line."""
_FEWEST = 20
"""Jobs below which nobody fills a queue."""
_SHOWN = 5


class QueueShare(Struct, frozen=True):
    """Jobs with the same label, or the same key of their task. where: the page with more of them."""

    name: str
    count: int
    where: str


def read_first(reader: StoreReader, queue: str) -> list[Job]:
    """Ready jobs of the queue, a bounded number; StoreError."""
    return reader.ask(lambda: reader.store.find(Query((State.READY,), queue, limit=LOOKED_AT)))


def shares_of(jobs: Sequence[Job], queue: str) -> list[QueueShare]:
    """The largest shares; none where all have the same, or nobody has much."""
    counts = Counter(share for job in jobs for share in _marks(job, queue))
    least = max(_FEWEST, _PART * len(jobs))
    large = [(name, where, count) for (name, where), count in counts.most_common() if count >= least]
    return [QueueShare(name, count, where) for name, where, count in large[:_SHOWN]]


def _marks(job: Job, queue: str) -> Iterator[tuple[str, str]]:
    for name, value in job.labels.items():
        yield f"{name}:{value}", jobs_path(queue=queue, state=State.READY.value, label=f"{name}={value}")
    # A task with one lane for all of its jobs has no keys.
    if job.lane:
        yield f"{job.task} {job.lane}", limit_keys_path(EACH + job.task)
