"""The contract of Django's tasks, our options and transactions, on every kind of store."""

from pathlib import Path

from tests.django.running import on_server, run_suite, sqlite_file
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

ALL = ("contract", "options", "transactions")


def test_beside_a_database_in_memory() -> None:
    run_suite(*ALL, "admin_pages", "schedule_pages")


def test_in_the_file_of_django(tmp_path: Path) -> None:
    run_suite(*ALL, database=sqlite_file(tmp_path))
    assert not (tmp_path / "shop.db").exists()


def test_in_a_file_of_its_own(tmp_path: Path) -> None:
    run_suite(*ALL, database=sqlite_file(tmp_path), options={"store": f"sqlite:///{tmp_path}/jobs.db"})


def test_in_redis(redis_server: RedisServer) -> None:
    redis_server.empty()
    run_suite(*ALL, options={"store": redis_server.url})


def test_in_postgres(postgres_server: PostgresServer) -> None:
    run_suite(
        *ALL,
        "admin_pages",
        "schedule_pages",
        database=on_server("postgresql", "postgres", "postgres", postgres_server.port),
    )


def test_in_mysql(mariadb_server: MariadbServer) -> None:
    run_suite(*ALL, database=on_server("mysql", "tarry", "root", mariadb_server.port))
