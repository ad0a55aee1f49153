"""Random histories, in which the PostgreSQL store must answer every call as the reference does, and keep what it keeps.

Once far from the server's clock, where all jobs are in order; and once at it, where some are out of order.
"""

import time
from typing import ClassVar

import psycopg
import pytest

from tarry.store.opening import open_store
from tarry.store.rules.base import Store
from tests.servers.postgres import PostgresServer
from tests.store.test_machine import Histories, histories


class PostgresHistories(Histories):
    server: ClassVar[PostgresServer]

    def opened(self) -> Store:
        with psycopg.connect(self.server.url, autocommit=True) as link:
            link.execute("DROP SCHEMA IF EXISTS machine CASCADE")
        return open_store(f"{self.server.url}?schema=machine", durable=False)


class NowHistories(PostgresHistories):
    def __init__(self) -> None:
        super().__init__()
        self.now = time.time_ns() // 1000


@pytest.fixture(autouse=True, scope="module")
def _served(postgres_server: PostgresServer) -> None:
    PostgresHistories.server = postgres_server


TestPostgres = pytest.mark.timeout(600)(PostgresHistories.TestCase)
TestPostgresNow = pytest.mark.timeout(600)(NowHistories.TestCase)
TestPostgres.settings = TestPostgresNow.settings = histories(15)
