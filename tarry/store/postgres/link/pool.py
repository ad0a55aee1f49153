"""The connections of one process to PostgreSQL. All its threads share a few."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

from tarry.errors import StoreAway, StoreUnavailable
from tarry.store.postgres.link.connection import PostgresConnection, connect
from tarry.store.postgres.link.postgres_errors import RETRIED, translate, translate_errors
from tarry.store.postgres.link.url import PostgresUrl
from tarry.store.shared.pool import ConnectionPool, Loan
from tarry.store.sql.columns import Row

T = TypeVar("T")
# More would not make a database faster.
MOST = 8
"""The most connections of one process."""
LONG_TIMEOUT = 60
"""Seconds for a command that reads all jobs. People wait for these; workers do not."""
TRIES = 6
"""How often a transaction that conflicts with others is tried."""


class PostgresPool(ConnectionPool[PostgresConnection]):
    """Connections to the store at one URL."""

    def __init__(self, url: PostgresUrl) -> None:
        super().__init__(MOST)
        self.url = url
        self._identity: Row | None = None

    def identity(self, statement: str) -> Row:
        """What tells this database from all others; read once."""
        if self._identity is None:
            (self._identity,) = self.call(lambda connection: connection.rows(statement))
        return self._identity

    def call(self, work: Callable[[PostgresConnection], T]) -> T:
        """Runs it with a connection; again after a conflict with other transactions. Raises errors of tarry."""
        with translate_errors(self.url):
            for tried in range(1, TRIES + 1):
                try:
                    with self.lend_one() as connection:
                        return work(connection)
                except psycopg.Error as error:
                    if error.sqlstate not in RETRIED or tried == TRIES:
                        raise
                    # At random: two transactions that met must not meet again.
                    time.sleep(random.uniform(0, 0.01) * 2**tried)
        raise AssertionError("the last try returns or raises")

    def call_long(self, work: Callable[[PostgresConnection], T]) -> T:
        """As `call`, in one transaction and with a long timeout."""

        # Tables are read whole here, so sequential scans are allowed, unlike for the hot verbs (`connection`).
        def run(connection: PostgresConnection) -> T:
            usual, connection.timeout = connection.timeout, LONG_TIMEOUT + 1.0
            try:
                with connection.transaction_with(
                    f"SET LOCAL statement_timeout = '{LONG_TIMEOUT}s'", "SET LOCAL enable_seqscan = on"
                ):
                    return work(connection)
            finally:
                connection.timeout = usual

        return self.call(run)

    def lend_one(self) -> Loan[PostgresConnection]:
        """`with pool.lend_one() as connection:`. It is closed if a transaction is left open on it."""
        return self.lend(self.url.timeout)

    def _open(self, end: float) -> PostgresConnection:
        if self._closed:
            raise StoreUnavailable(f"{self.url.shown}: the store was closed; open it again")
        try:
            return connect(self.url)
        except psycopg.Error as error:
            translated = translate(error, self.url, connecting=True)
            # StoreAway tells the caller that nothing was stored: nothing was sent yet.
            raise StoreAway(str(translated)) if type(translated) is StoreUnavailable else translated from None

    def _prepare(self, connection: PostgresConnection) -> bool:
        return connection.is_usable

    def _restore(self, connection: PostgresConnection, error: BaseException | None) -> bool:
        return connection.is_idle

    def _discard(self, connection: PostgresConnection) -> None:
        connection.discard()

    def _busy_error(self) -> Exception:
        return StoreAway(
            f"{self.url.shown}: all {self._most} connections of this process were busy for {self.url.timeout:g} s"
        )
