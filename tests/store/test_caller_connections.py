"""A caller's connection to a database of another kind is told so by every store in SQL, whatever its library."""

import importlib
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tarry.errors import OtherDatabase
from tarry.store.mysql import transactional as mysql
from tarry.store.postgres import transactional as postgres
from tarry.store.sql.caller_connection import DRIVERS, Driver
from tarry.store.sqlite import transactional as sqlite

STORES: list[Any] = [sqlite, postgres, mysql]


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.connection[0])
def driver(request: pytest.FixtureRequest) -> Driver:
    wanted: Driver = request.param
    return wanted


@pytest.fixture
def connection(driver: Driver) -> Iterator[Any]:
    """An object of the library's class, which is connected to nothing."""
    module, name = driver.connection
    found: Any = getattr(pytest.importorskip(module), name)
    if module not in ("sqlite3", "apsw"):
        yield found.__new__(found)
        return
    with closing(found(":memory:")) as opened:
        yield opened


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.ACCEPTED.kept)
def test_each_driver_with_each_store(store: Any, driver: Driver, connection: Any) -> None:
    if driver.kind in store.ACCEPTED.kinds:
        assert store._recognise(connection)
    else:
        with pytest.raises(OtherDatabase, match=f"a {driver.kind} database, .* kept in {store.ACCEPTED.kept}"):
            store._recognise(connection)


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.ACCEPTED.kept)
def test_what_is_no_connection(store: Any) -> None:
    with pytest.raises(TypeError, match=f"connection='x': give {store.ACCEPTED.what[:30]}"):
        store._recognise("x")


def test_the_table_names_classes_that_there_are() -> None:
    for driver in DRIVERS:
        for module, name in (driver.connection, driver.cursor):
            try:
                found = importlib.import_module(module)
            except ImportError:
                continue
            assert hasattr(found, name)
