"""Finds jobs by their labels, by a table that has a row for each label of a job: name, value, job."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from tarry.model.job import Job, JobLabel
from tarry.store.rules.base import Query

PAGE = 500
"""Jobs that are read at once at least: of those with the labels, few may match."""
FindLabelled = Callable[[Sequence[JobLabel], bytes, bytes, int], list[bytes]]


class LabelSql(Protocol):
    """What it needs of `SqlStatements`."""

    @property
    def tables(self) -> str: ...

    @property
    def id(self) -> str: ...

    @property
    def bytes_of(self) -> str: ...


def label_search(sql: LabelSql, labels: Sequence[JobLabel], after: bytes, until: bytes) -> tuple[str, list[Any]]:
    """The SELECT of the ids of jobs with all of these labels, and its values. after, until: bounds of the ids; empty:
    none."""
    # By the first label in the order of ids, each of which is looked up among those of the others.
    where, values = ["l.name = ?1", "l.value = ?2"], [*labels[0]]
    bound: list[Any] = [*values]
    for sign, id in ((">", after), ("<=", until)):
        if id:
            bound.append(id)
            where.append(f"l.job {sign} {sql.id.format(f'?{len(bound)}')}")
    for label in labels[1:]:
        bound += label
        same = f"o.name = ?{len(bound) - 1} AND o.value = ?{len(bound)} AND o.job = l.job"
        where.append(f"EXISTS (SELECT 1 FROM {sql.tables}label o WHERE {same})")
    return f"SELECT {sql.bytes_of.format('l.job')} FROM {sql.tables}label l WHERE {' AND '.join(where)}", bound


def find_labelled(
    query: Query, labelled: FindLabelled, fetch: Callable[[Collection[bytes]], Iterable[Job]]
) -> list[Job]:
    """As `Store.find`, of a query that has labels. labelled: ids of jobs with these labels, after one and up to
    another, at most so many. fetch: the jobs with these ids."""
    found: list[Job] = []
    after, size = query.after, max(PAGE, min(query.limit, 2 * PAGE))
    while len(found) < query.limit:
        ids = labelled(query.labels, after, query.until, size)
        # What is in the index and not here was deleted between the two looks.
        jobs = fetch(ids) if ids else ()
        found += sorted((job for job in jobs if query.matches(job)), key=lambda job: job.id)
        if len(ids) < size:
            break
        after = ids[-1]
    return found[: max(0, query.limit)]
