"""A connection of the caller, of any library: what every store checks before it writes through it."""

import sys
from collections.abc import Collection
from typing import Any

from tarry.errors import OtherDatabase

NO_TRANSACTION = (
    "connection= has no transaction open, and commits each statement at once: begin one first, or leave connection= out"
)


def is_a(value: Any, module: str, name: str) -> bool:
    """Whether the value is of that class."""
    # The module is not imported: a caller that has such a value has loaded it.
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name, ()))


def is_alchemy(connection: Any) -> bool:
    """Whether the connection is a `Connection` of SQLAlchemy."""
    return is_a(connection, "sqlalchemy.engine", "Connection")


def underneath(connection: Any, kinds: Collection[str], kept: str) -> Any:
    """The `Connection` of a SQLAlchemy Session, the driver's connection of a Django one, else the given connection.

    OtherDatabase if SQLAlchemy or Django says that it is to a database of none of these kinds. kept: the name, for
    people, of the kind in which the jobs are.
    """
    if is_a(connection, "sqlalchemy.orm", "Session"):
        # Checked before the next line, which opens a connection and begins a transaction.
        _check_kind(_bind(connection).dialect.name, kinds, kept)
        connection = connection.connection()
    if is_alchemy(connection):
        _check_kind(connection.dialect.name, kinds, kept)
    elif _is_django(connection):
        _check_kind(connection.vendor, kinds, kept)
        # Django connects at the first query: before it there is no driver's connection.
        connection.ensure_connection()
        # What is written in a transaction that failed is lost at its rollback.
        connection.validate_no_broken_transaction()
        return connection.connection
    return connection


def _bind(session: Any) -> Any:
    try:
        return session.get_bind()
    except sys.modules["sqlalchemy.exc"].UnboundExecutionError:
        raise OtherDatabase("connection= is a Session without a database of its own") from None


def _is_django(connection: Any) -> bool:
    return is_a(connection, "django.db.backends.base.base", "BaseDatabaseWrapper") or is_a(
        connection, "django.utils.connection", "ConnectionProxy"
    )


def _check_kind(kind: str, kinds: Collection[str], kept: str) -> None:
    if kind not in kinds:
        raise OtherDatabase(f"connection= is to a {kind} database, and the jobs are kept in {kept}")
