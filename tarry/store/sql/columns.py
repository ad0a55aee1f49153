"""The columns of a job in SQL databases, from the table in `shared/columns.py`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tarry.model.job import Job, State
from tarry.store.shared.columns import CLAIMED, COLUMNS, FIELDS, ColumnKind, JobColumn, compile_function
from tarry.store.shared.state_codes import CODE, state_of

Row = tuple[Any, ...]
"""A row as a driver answers it."""

COLUMN_OF = {column.field: column.name for column in COLUMNS}
ColumnTypes = Mapping[ColumnKind | str, str | None]
"""The type of each kind of column in one database, of one field (None: the table of jobs does not have it), or of a
column of the store's own; in the order of the table."""


def column_list(fields: Iterable[str] = FIELDS, expressions: Mapping[str, str] | None = None) -> str:
    """The columns of these fields, for a statement. expressions: by field, an expression in place of its column."""
    return ", ".join((COLUMN_OF | dict(expressions or {}))[field] for field in fields)


def column_definitions(types: ColumnTypes, names: Mapping[str, str] = COLUMN_OF) -> Iterator[str]:
    """The columns of the table of jobs, for CREATE TABLE."""
    for key, type in types.items():
        fields = [key] if isinstance(key, str) else [c.field for c in COLUMNS if c.kind is key and c.field not in types]
        yield from (f"{names.get(field, field)} {type}" for field in fields if type is not None)


def value_of(column: JobColumn) -> str:
    """The expression that has the value of a column, from `job`."""
    if column.kind is ColumnKind.STATE:
        return f"CODE[job.{column.field}]"
    return f"-job.{column.field}" if column.field == "priority" else f"job.{column.field}"


def values_of(columns: Iterable[JobColumn]) -> Callable[[Job], Row]:
    """A function from a job to its values in these columns."""
    return compile_function(f"def made(job): return ({', '.join(map(value_of, columns))},)", CODE=CODE)  # type: ignore[no-any-return]


stored_values = values_of(column for column in COLUMNS if column.stored)
"""The values of STORED."""


def name_text(name: str | bytes) -> str:
    """A name that was read: a database may keep names as bytes."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def stored_job(row: Sequence[Any]) -> Job:
    """The job of a row of FIELDS, in which the state is a code."""
    return Job(*row[:6], state_of(row[6]), *row[7:])  # type: ignore[call-arg]


SET_BY_A_CLAIM = {"state": "RUNNING", "owner": "owner", "state_since": "now", "keep_until": "0"}
"""The fields that a claim sets without a look at what they were, in terms of `claimed_jobs`."""
_JOB = ", ".join(SET_BY_A_CLAIM.get(field, field) for field in FIELDS)


def claim_reader(places: str = "") -> Callable[[Iterable[Row], str, int], list[Job]]:
    """A function from claimed rows to their jobs, as `owner` runs them from `now` on, in the order to run them. A row
    has the values of CLAIMED. places: names for values that come before these."""
    read = compile_function(
        f"def made(rows, owner, now): return [Job({_JOB}) for {places}{', '.join(CLAIMED)} in rows]",
        Job=Job,
        RUNNING=State.RUNNING,
    )

    def read_claim(rows: Iterable[Row], owner: str, now: int) -> list[Job]:
        jobs: list[Job] = read(rows, owner, now)
        jobs.sort(key=_run_order)
        return jobs

    return read_claim


def _run_order(job: Job) -> tuple[int, int, bytes]:
    return (-job.priority, job.due, job.id)
