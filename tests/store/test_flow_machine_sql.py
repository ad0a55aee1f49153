"""Random histories with flows and signals, over the SQL stores."""

import pytest

from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.store.test_flow_machine import FlowHistories
from tests.store.test_machine import MariadbHistories, SqliteHistories, histories
from tests.store.test_postgres_machine import PostgresHistories


class SqliteFlowHistories(FlowHistories, SqliteHistories):
    pass


class PostgresFlowHistories(FlowHistories, PostgresHistories):
    pass


class MariadbFlowHistories(FlowHistories, MariadbHistories):
    pass


@pytest.fixture(autouse=True, scope="module")
def _served(postgres_server: PostgresServer, mariadb_server: MariadbServer) -> None:
    PostgresHistories.server, MariadbHistories.server = postgres_server, mariadb_server


TestSqliteFlows = pytest.mark.timeout(400)(SqliteFlowHistories.TestCase)
TestPostgresFlows = pytest.mark.timeout(600)(PostgresFlowHistories.TestCase)
TestMariadbFlows = pytest.mark.timeout(600)(MariadbFlowHistories.TestCase)
TestSqliteFlows.settings = histories(30)
TestPostgresFlows.settings = histories(8)
TestMariadbFlows.settings = histories(8)
