"""Finds jobs by their labels, by a table that has a row for each label of a job: name, value, job."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from tarry.model.job import Job
from tarry.store.rules.base import Query
from tarry.store.shared.state_codes import CODE

FEW, MANY = 20, 1000
"""Jobs that are read at first at least, and at once at most: of those with the labels, few may match."""
FindLabelled = Callable[[Query, bytes, int], list[bytes]]


class LabelSql(Protocol):
    """What it needs of `SqlStatements`."""

    @property
    def tables(self) -> str: ...

    @property
    def id(self) -> str: ...

    @property
    def bytes_of(self) -> str: ...


def label_search(sql: LabelSql, query: Query, after: bytes) -> tuple[str, list[Any]]:
    """The SELECT of the ids of jobs with the labels and in the states of the query, up to its last id, and its values.
    after: only greater ids; empty: all."""
    # By the first label in the order of ids, each of which is looked up among those of the others.
    labels = query.labels
    where, bound = ["l.name = ?1", "l.value = ?2"], list[Any](labels[0])
    for sign, id in ((">", after), ("<=", query.until)):
        if id:
            bound.append(id)
            where.append(f"l.job {sign} {sql.id.format(f'?{len(bound)}')}")
    for label in labels[1:]:
        bound += label
        same = f"o.name = ?{len(bound) - 1} AND o.value = ?{len(bound)} AND o.job = l.job"
        where.append(f"EXISTS (SELECT 1 FROM {sql.tables}label o WHERE {same})")
    if query.states:
        # Here and not only once the jobs are read: many may have ended, and few of a label may not.
        codes = ", ".join(str(CODE[state]) for state in query.states)
        where.append(f"EXISTS (SELECT 1 FROM {sql.tables}job j WHERE j.id = l.job AND j.state IN ({codes}))")
    return f"SELECT {sql.bytes_of.format('l.job')} FROM {sql.tables}label l WHERE {' AND '.join(where)}", bound


def find_labelled(
    query: Query, labelled: FindLabelled, fetch: Callable[[Collection[bytes]], Iterable[Job]]
) -> list[Job]:
    """As `Store.find`, of a query that has labels. labelled: ids that `label_search` finds, after one, at most so many.
    fetch: the jobs with these ids."""
    found: list[Job] = []
    after, size = query.after, max(FEW, min(query.limit, MANY))
    while len(found) < query.limit:
        ids = labelled(query, after, size)
        # What is in the index and not here was deleted between the two looks.
        jobs = fetch(ids) if ids else ()
        found += sorted((job for job in jobs if query.matches(job)), key=lambda job: job.id)
        if len(ids) < size:
            break
        after, size = ids[-1], min(4 * size, MANY)
    return found[: max(0, query.limit)]
