"""The functions that the PostgreSQL store keeps in its schema, and how an older schema gets those of this tarry.

Callers see no difference between the revisions of a function: it keeps its name, and the names and types of its
arguments and of the columns that it returns. So it is replaced when a store is opened, while older workers call it.
"""

import hashlib
from importlib.resources import files

from msgspec import Struct

from tarry.store.postgres.constants import in_schema, with_constants
from tarry.store.postgres.link.connection import PostgresConnection
from tarry.store.postgres.sql import for_schema


def read_function(name: str) -> str:
    """The statement that creates the function in `NAME.sql`."""
    path = files("tarry.store.postgres.functions") / f"{name}.sql"
    return with_constants(path.read_text(encoding="utf-8"))


class FunctionSet(Struct, frozen=True):
    """All functions of one tarry. revision: a higher one replaces a lower one, never the other way."""

    revision: int
    statements: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The SHA-256 of all statements, in hex."""
        return hashlib.sha256("\0".join(self.statements).encode()).hexdigest()

    @property
    def mark(self) -> str:
        """What the table `about` says of a schema that has these functions."""
        return f"{self.revision} {self.digest}"

    def replaces(self, mark: str | None) -> bool:
        """Whether a schema with that mark is to get these functions. None: it has no mark."""
        if mark is None:
            return True
        revision, _, digest = mark.partition(" ")
        # A newer tarry has been here: its functions are at least as good.
        is_older = revision.isdigit() and int(revision) > self.revision
        return not is_older and digest != self.digest


REVISION = 9
"""One more with each change of a function: `tests/store/test_postgres_functions.py` has the digest of each."""
_NAMES = (
    "insert", "limit_numbers", "room_under", "count_levels", "change_levels", "ending", "ended_levels", "ended",
    "lanes", "lanes_backwards", "lock_claims", "choose_in_lanes", "claim_in_lanes", "remove_lanes", "apply", "promote",
    "exchange", "queues", "release", "finish_flow", "settle_flows", "wake_waiting", "exchange_nodes", "insert_flow",
    "change_flow", "release_flow", "signal", "label", "unlabel",
)  # fmt: skip
FUNCTIONS = FunctionSet(REVISION, tuple(map(read_function, _NAMES)))
_FIRST_MARK = "INSERT INTO {s}.about VALUES ('functions', '%s')"
_MARK = "SELECT value FROM {s}.about WHERE name = 'functions'"
_SET_MARK = """INSERT INTO {s}.about VALUES ('functions', $1)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value"""


def creating() -> tuple[str, ...]:
    """The statements that make the functions in a schema that is new, and mark it."""
    return (*FUNCTIONS.statements, _FIRST_MARK % FUNCTIONS.mark)


def is_outdated(connection: PostgresConnection, schema: str, functions: FunctionSet = FUNCTIONS) -> bool:
    """Whether the schema has functions that these replace."""
    rows = connection.rows(for_schema(_MARK, schema))
    return functions.replaces(rows[0][0] if rows else None)


def replace_functions(connection: PostgresConnection, schema: str, functions: FunctionSet = FUNCTIONS) -> None:
    """Makes the functions anew and marks the schema. To be called in a transaction that holds the migration lock."""
    for statement in functions.statements:
        connection.run(in_schema(statement, schema))
    connection.run(for_schema(_SET_MARK, schema), (functions.mark,))
