"""The columns of a job in the statements and functions of the PostgreSQL store, from the table in `shared/columns.py`.

Jobs that are inserted come as arrays: of the columns in which most differ one element a job (p_*), of all others one
for each kind of job (k_*), by whose number (p_kind) a job finds its own.
"""

from collections.abc import Iterable, Mapping

from tarry.store.shared.columns import CLAIMED, COLUMNS, STORED, ColumnKind, JobColumn
from tarry.store.sql.columns import column_list

TYPES: Mapping[ColumnKind, str] = {
    ColumnKind.ID: "uuid",
    ColumnKind.NUMBER: "bigint",
    ColumnKind.COUNT: "int",
    ColumnKind.STATE: "smallint",
    ColumnKind.NAME: "text",
    ColumnKind.OPTIONAL: "text",
    ColumnKind.BLOB: "bytea",
}
OWN = tuple(column for column in COLUMNS if column.is_own)
OF_KIND = tuple(column for column in COLUMNS if column.stored and not column.is_own)
NEW_TYPES = ("int[]", *(f"{TYPES[column.kind]}[]" for column in (*OWN, *OF_KIND)))
"""The types of the arguments that have new jobs."""
AS_JOBS = {"id": "uuid_send({}id)", "priority": "-{}claim_order"}
"""How columns are read as fields of a job, of a row {}."""
PLAIN = ("id", "task", "body", "queue", "priority", "state", "due", "state_since", "expires", "headers")
"""In what jobs differ that have nothing unusual: the values of `sql.INSERT_PLAIN`."""
USUAL = tuple(column for column in COLUMNS if column.stored and column.field not in PLAIN)
"""What is as in most jobs in them."""


def of_row(row: str, fields: Iterable[str] = STORED, as_jobs: bool = False) -> str:
    """The columns of these fields, in a row with a dot behind it. as_jobs: as they are in a job."""
    expressions = {field: text.format(row) for field, text in AS_JOBS.items()} if as_jobs else {}
    return column_list(fields, {c.field: f"{row}{c.name}" for c in COLUMNS} | expressions)


def _columns(columns: Iterable[JobColumn], form: str) -> str:
    return ", ".join(form.format(name=column.name, type=TYPES[column.kind]) for column in columns)


# A new job of a task with a limit waits in a lane.
_LANE = """CASE WHEN limited AND k.lane IS NULL AND EXISTS (
    SELECT FROM {s}.limits l WHERE l.name IN ('task:' || k.task, 'each:' || k.task)) THEN '' ELSE k.lane END AS lane"""
_FROM = {column.field: f"{'p' if column.is_own else 'k'}.{column.name}" for column in COLUMNS} | {"lane": _LANE}
_ANSWER = ", ".join(
    f"{column.field} {'bytea' if column.kind is ColumnKind.ID else TYPES[column.kind]}"
    for column in COLUMNS
    if column.claimed
)
IN_SQL = {
    "{stored}": of_row(""),
    "{new_arguments}": f"p_kind int[], {_columns(OWN, 'p_{name} {type}[]')}, {_columns(OF_KIND, 'k_{name} {type}[]')}",
    "{new_first}": f"p_kind[1:1], {_columns(OWN, 'p_{name}[1:1]')}, {_columns(OF_KIND, 'k_{name}')}",
    "{new_others}": f"p_kind[2:], {_columns(OWN, 'p_{name}[2:]')}, {_columns(OF_KIND, 'k_{name}')}",
    "{p_arrays}": f"p_kind, {_columns(OWN, 'p_{name}')}",
    "{p_names}": f"kind, {_columns(OWN, '{name}')}",
    "{k_arrays}": _columns(OF_KIND, "k_{name}"),
    "{k_names}": _columns(OF_KIND, "{name}"),
    "{new_values}": column_list(STORED, _FROM),
    "{new_record}": of_row("new."),
    "{claimed}": of_row("j.", CLAIMED, as_jobs=True),
    "{claim_answer}": _ANSWER,
    "{claim_values}": ", ".join(f"e.{field}" for field in CLAIMED),
}
"""What stands in the functions for these columns."""
