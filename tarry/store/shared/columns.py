"""The columns of a job: the one table that names them.

From it come, on each engine, the table of jobs, the lists of columns in statements, and what reads and writes rows: in
SQL databases by `sql/columns.py`, in PostgreSQL also the arguments and rows of its functions (`postgres/constants.py`),
in Redis the tail of a record (`redis/record.py`, `redis/lua/record.lua`).

A column has the name of its field. But for the priority: indexes run upwards, and a higher priority is claimed first,
so `claim_order` is its negative.
"""

from enum import Enum, auto
from typing import Any

from msgspec import NODEFAULT, Struct

from tarry.model.job import Job


class ColumnKind(Enum):
    """What a column holds. Only OPTIONAL may be NULL."""

    ID = auto()
    STATE = auto()
    NUMBER = auto()
    """64 bits: a time, an order."""
    COUNT = auto()
    """32 bits."""
    NAME = auto()
    """Text of at most 500 characters."""
    OPTIONAL = auto()
    """Text, or none."""
    BLOB = auto()


class JobColumn(Struct, frozen=True):
    """A column of a job."""

    field: str
    kind: ColumnKind
    name: str
    stored: bool = True
    """An insert writes it."""
    claimed: bool = True
    """A claim reads it; the others it sets itself."""
    is_own: bool = False
    """Jobs that are stored together mostly differ in it: PostgreSQL gets it for each job, others for each kind of
    job."""
    tail: int = 0
    """Its flag in the tail of Redis' record, which has it only if it is not as in most jobs; two columns that come
    together share one. 0: it is not in the tail."""

    @property
    def default(self) -> Any:
        """What most jobs have in it; NODEFAULT: each has its own."""
        return _DEFAULTS.get(self.field, NODEFAULT)


_fields = Job.__struct_fields__
_DEFAULTS = dict(zip(reversed(_fields), reversed(Job.__struct_defaults__), strict=False))


def _column(field: str, kind: ColumnKind, name: str = "", **options: Any) -> JobColumn:
    return JobColumn(field, kind, name or field, **options)


# In the order of the fields of a job. A new one needs a default, and a flag in the tail, of which 128 is left: after
# that the flags take a second byte.
COLUMNS = (
    _column("id", ColumnKind.ID, is_own=True),
    _column("task", ColumnKind.NAME),
    _column("body", ColumnKind.BLOB, is_own=True),
    _column("queue", ColumnKind.NAME),
    _column("priority", ColumnKind.NUMBER, "claim_order"),
    _column("due", ColumnKind.NUMBER, is_own=True),
    _column("state", ColumnKind.STATE, claimed=False),
    _column("epoch", ColumnKind.COUNT),
    _column("failures", ColumnKind.COUNT),
    _column("crashes", ColumnKind.COUNT),
    _column("owner", ColumnKind.OPTIONAL, stored=False, claimed=False),
    _column("state_since", ColumnKind.NUMBER, claimed=False, is_own=True),
    _column("keep_until", ColumnKind.NUMBER, claimed=False),
    _column("expires", ColumnKind.NUMBER, tail=1),
    _column("key", ColumnKind.OPTIONAL, tail=32),
    _column("note", ColumnKind.BLOB),
    _column("key_ttl", ColumnKind.NUMBER, tail=2),
    _column("key_held_until", ColumnKind.NUMBER, tail=2),
    _column("lane", ColumnKind.OPTIONAL, tail=4),
    _column("headers", ColumnKind.BLOB, tail=8),
    _column("progress", ColumnKind.BLOB, tail=16),
    _column("attempts", ColumnKind.BLOB, tail=64),
)
"""All columns. A new job has no owner."""
FIELDS = tuple(column.field for column in COLUMNS)
STORED = tuple(column.field for column in COLUMNS if column.stored)
"""What an insert writes."""
CLAIMED = tuple(column.field for column in COLUMNS if column.claimed)
"""What a claim reads."""
BLOBS = tuple(column.name for column in COLUMNS if column.kind is ColumnKind.BLOB)
"""The columns whose bytes count as the size of a job, as `Job.size` has it."""
TAIL = tuple(sorted((column for column in COLUMNS if column.tail), key=lambda column: column.tail))
"""The columns in the tail of Redis' record, in their order there."""


def compile_function(function: str, **names: Any) -> Any:
    """The function `made` that this text defines, with these names."""
    # Rows are read and written for every job: by functions that are made of the table, as quick as if they were written
    # out, and two to three times as quick as by the names of the fields.
    exec(function, names)
    return names["made"]
