"""Inserts jobs through the caller's own connection: the jobs are there if, and only if, the caller commits.

Nothing of the connection changes: statements run on cursors of our own. Its errors reach the caller as they are, since
the caller began the transaction and has to roll it back.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from tarry.errors import OtherDatabase, StoreError
from tarry.store.mysql.insert import RunSql, SqlRows
from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.sql.caller_connection import MYSQLCLIENT, NO_TRANSACTION, PYMYSQL, Accepted, alchemy_rows, recognise

ACCEPTED = Accepted(
    ("mysql", "mariadb"),
    "MySQL or MariaDB",
    "a connection or cursor of PyMySQL or mysqlclient, a Connection or Session of SQLAlchemy (with aenqueue also the"
    " asynchronous ones), or a connection of Django",
)
_WHERE = "SELECT CONCAT_WS('|', @@hostname, @@port, @@datadir, @@server_id, HEX(DATABASE()))"
_IN_TRANSACTION = 1
"""The bit of the server's status for an open transaction."""


def where(link: MysqlConnection) -> str:
    """The server and the database of the store's own connection."""
    return str(link.rows(_WHERE)[0][0])


def through(connection: Any, url: str, home: Callable[[], str]) -> RunSql:
    """A function that runs statements on the caller's connection, once it is known to be fit for inserts.

    OtherDatabase if it is to another database; StoreError if its writes would not wait for a commit; TypeError if it is
    no known kind of connection.
    """
    run, driver = _recognise(connection)
    # Both servers are asked, since different URLs may lead to the same database.
    if _text(run(_WHERE)[0][0]) != home():
        raise OtherDatabase(f"connection= is to another database than {url}, where the jobs are kept")
    if not _transactional(run, driver):
        raise StoreError(NO_TRANSACTION)
    return run


def _recognise(connection: Any) -> tuple[RunSql, Any]:
    """A way to run statements, and the driver's connection."""
    return recognise(connection, ACCEPTED, {PYMYSQL: _driver, MYSQLCLIENT: _driver}, _alchemy)


def _alchemy(connection: Any) -> tuple[RunSql, Any]:
    return partial(alchemy_rows, connection), connection.connection.driver_connection


def _driver(connection: Any) -> tuple[RunSql, Any]:
    # Not the connection's usual cursors: those may answer dicts, or leave rows unread.
    package = "pymysql" if type(connection).__module__.startswith("pymysql") else "MySQLdb"
    plain = sys.modules[f"{package}.cursors"].Cursor

    def run(statement: str) -> SqlRows:
        with connection.cursor(plain) as cursor:
            cursor.execute(statement)
            found: SqlRows = cursor.fetchall() if cursor.description else ()
            return found

    return run, connection


def _transactional(run: RunSql, driver: Any) -> bool:
    # Without autocommit the first write begins a transaction.
    ((committing,),) = run("SELECT @@autocommit")
    if not int(committing):
        return True
    status = getattr(driver, "server_status", None)
    if status is not None:
        # The driver learns the status from the answer to a statement that finds nothing.
        run("DO 0")
        return bool(driver.server_status & _IN_TRANSACTION)
    # A driver that does not tell the status: only MariaDB has a variable for it, so on MySQL the answer is no.
    ((version,),) = run("SELECT VERSION()")
    return "mariadb" in _text(version).lower() and bool(int(run("SELECT @@in_transaction")[0][0]))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
