"""Creates the PostgreSQL store's schema in an empty database, and brings an older one up to date on demand."""

import contextlib
from collections.abc import Iterator

import psycopg

from tarry.errors import StoreError, StoreUnavailable
from tarry.store.postgres.link.connection import PostgresConnection
from tarry.store.postgres.link.pool import PostgresPool
from tarry.store.postgres.link.postgres_errors import translate_errors
from tarry.store.postgres.link.url import PostgresUrl, parse_url
from tarry.store.postgres.schema import (
    MIGRATIONS,
    apply_migration,
    read_version,
    update_functions,
)
from tarry.store.postgres.stored_functions import FUNCTIONS, FunctionSet, is_outdated
from tarry.store.shared.creation import check_creation
from tarry.store.shared.schema_steps import SchemaStep, describe

# While a migration waits for a lock, every later transaction on that table waits behind it.
LOCK_WITHIN = 2
"""Seconds that a migration waits for a lock, at each try."""
TRIES = 30
# A migration may build an index over all jobs.
UNBOUNDED = 86400.0
"""Seconds."""
Migrations = tuple[SchemaStep, ...]
_UPDATES = "functions: makes them anew, as this tarry has them"


def create_or_check(
    pool: PostgresPool, migrations: Migrations = MIGRATIONS, functions: FunctionSet = FUNCTIONS
) -> None:
    """Creates the schema if there is none, and replaces older functions of one that is there.

    StoreNewer, or StoreError if the schema is older; then nothing is written.
    """
    newest = len(migrations)
    version = _version(pool, newest)
    if not version:
        check_creation(pool.url.shown)
        # As one step: who starts meanwhile would take the tables of an earlier version for old ones.
        statements = tuple(one for each in migrations for one in each.statements)
        whole = SchemaStep("makes all", statements, migrations[-1].older_go_on)
        _apply_all(pool, range(newest, newest + 1), (*migrations[:-1], whole))
    elif version < newest:
        raise StoreError(f"{pool.url.shown} has schema {version}, and this tarry needs {newest}: run `tarry migrate`")
    pool.call(lambda connection: _update_if_allowed(connection, pool.url, functions))


def pending(url: str, migrations: Migrations = MIGRATIONS) -> list[str]:
    """What `migrate` would do there, a line for each migration. Raises the errors of opening the store."""
    with _open_pool(url) as pool:
        steps = [_describe(number, migrations) for number in _missing(pool, migrations)]
        return steps + [_UPDATES] * _has_old_functions(pool, len(migrations))


def migrate(url: str, migrations: Migrations = MIGRATIONS) -> list[str]:
    """Migrates, each step whole or not at all, also while others migrate. Answers the steps that were done here."""
    with _open_pool(url) as pool:
        steps = [_describe(number, migrations) for number in _apply_all(pool, _missing(pool, migrations), migrations)]
        return steps + [_UPDATES] * pool.call(lambda connection: _update(connection, pool.url, FUNCTIONS))


@contextlib.contextmanager
def _open_pool(url: str) -> Iterator[PostgresPool]:
    pool = PostgresPool(parse_url(url))
    try:
        yield pool
    finally:
        pool.close()


def _describe(number: int, migrations: Migrations) -> str:
    return f"schema {number}: {describe(migrations[number - 1])}"


def _version(pool: PostgresPool, newest: int) -> int:
    return pool.call(lambda connection: read_version(connection, pool.url, newest))


def _missing(pool: PostgresPool, migrations: Migrations) -> range:
    return range(_version(pool, len(migrations)) + 1, len(migrations) + 1)


def _has_old_functions(pool: PostgresPool, newest: int) -> bool:
    if not _version(pool, newest):
        return False
    return pool.call(lambda connection: is_outdated(connection, pool.url.schema))


def _update_if_allowed(connection: PostgresConnection, url: PostgresUrl, functions: FunctionSet) -> None:
    # Only the owner of a function may replace it. The old ones do the same, so all others go on with them.
    with contextlib.suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction):
        _update(connection, url, functions)


def _update(connection: PostgresConnection, url: PostgresUrl, functions: FunctionSet) -> bool:
    if not is_outdated(connection, url.schema, functions):
        return False
    with connection.transaction_with():
        return update_functions(connection, url, functions)


def _apply_all(pool: PostgresPool, numbers: range, migrations: Migrations) -> list[int]:
    with translate_errors(pool.url), pool.lend_one() as connection:
        # Our own limit on each wait, besides the server's, which `_apply` lifts.
        usual, connection.timeout = connection.timeout, UNBOUNDED
        try:
            return [number for number in numbers if _apply(connection, pool, number, migrations)]
        finally:
            connection.timeout = usual


def _apply(connection: PostgresConnection, pool: PostgresPool, number: int, migrations: Migrations) -> bool:
    for _ in range(TRIES):
        try:
            with connection.transaction_with(
                "SET LOCAL statement_timeout = 0", f"SET LOCAL lock_timeout = '{LOCK_WITHIN}s'"
            ):
                return apply_migration(connection, pool.url, number, migrations)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            # It waits no longer, so those behind it go on. Nothing was done, so it may simply try again.
            continue
    raise StoreUnavailable(
        f"{pool.url.shown}: step {number} found the tables locked for {TRIES * LOCK_WITHIN} s: end what has a"
        " transaction open there (`tarry check` says since when), then again"
    )
