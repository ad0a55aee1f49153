"""The caller's own connection as a way into the store: jobs that are there if, and only if, the caller commits.

Nothing of the connection is changed: statements run on cursors of our own, and its errors are its owner's, who began
the transaction and has to roll it back.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from tarry.errors import OtherDatabase, StoreError
from tarry.store.mysql.link import Link
from tarry.store.shared.theirs import NO_TRANSACTION, is_a, is_alchemy, underneath

ACCEPTED = (
    "a connection or cursor of PyMySQL or mysqlclient, a Connection or Session of SQLAlchemy (with aenqueue also the"
    " asynchronous ones), or a connection of Django"
)
Rows = Sequence[tuple[Any, ...]]
Run = Callable[[str], Rows]
_WHERE = "SELECT CONCAT_WS('|', @@hostname, @@port, @@datadir, @@server_id, HEX(DATABASE()))"
_IN_TRANSACTION = 1
"""The bit of the server's status that says so."""


def where(link: Link) -> str:
    """Which server and database the store's own connection is to."""
    return str(link.rows(_WHERE)[0][0])


def through(connection: Any, url: str, home: Callable[[], str]) -> Run:
    """The caller's connection, found fit to insert into the store with.

    OtherDatabase if it is to another one; StoreError if what it writes would not wait for a commit; TypeError if it is
    no connection that is known here.
    """
    run, driver = _recognised(connection)
    if _text(run(_WHERE)[0][0]) != home():
        raise OtherDatabase(f"connection= is to another database than {url}, where the jobs are kept")
    if not _transactional(run, driver):
        raise StoreError(NO_TRANSACTION)
    return run


def _recognised(connection: Any) -> tuple[Run, Any]:
    """A way to run statements, and the driver's connection."""
    for module in ("pymysql.cursors", "MySQLdb.cursors"):
        if is_a(connection, module, "Cursor" if module.startswith("py") else "BaseCursor"):
            connection = connection.connection
    connection = underneath(connection, ("mysql", "mariadb"), "MySQL or MariaDB")
    if is_alchemy(connection):
        return _alchemy(connection), connection.connection.driver_connection
    if is_a(connection, "pymysql.connections", "Connection") or is_a(connection, "MySQLdb.connections", "Connection"):
        return _driver(connection), connection
    raise TypeError(f"connection={connection!r}: give {ACCEPTED}")


def _driver(connection: Any) -> Run:
    # Not the connection's usual cursors: those may answer in dicts, or leave rows unread.
    package = "pymysql" if type(connection).__module__.startswith("pymysql") else "MySQLdb"
    plain = sys.modules[f"{package}.cursors"].Cursor

    def run(statement: str) -> Rows:
        with connection.cursor(plain) as cursor:
            cursor.execute(statement)
            found: Rows = cursor.fetchall() if cursor.description else ()
            return found

    return run


def _alchemy(connection: Any) -> Run:
    """Through its own API, so that it knows that a transaction has begun."""

    def run(statement: str) -> Rows:
        result = connection.exec_driver_sql(statement)
        return [tuple(row) for row in result.fetchall()] if result.returns_rows else []

    return run


def _transactional(run: Run, driver: Any) -> bool:
    ((committing,),) = run("SELECT @@autocommit")
    if not int(committing):
        return True
    status = getattr(driver, "server_status", None)
    if status is not None:
        # The driver learns it from the answer to a statement that finds nothing.
        run("DO 0")
        return bool(driver.server_status & _IN_TRANSACTION)
    ((version,),) = run("SELECT VERSION()")
    return "mariadb" in _text(version).lower() and bool(int(run("SELECT @@in_transaction")[0][0]))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
