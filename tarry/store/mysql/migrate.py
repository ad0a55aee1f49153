"""For `tarry migrate`: shows and makes the steps for the tables in a MySQL or MariaDB server."""

from tarry.errors import ConfigError
from tarry.store.mysql.link.address import parse
from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.link.errors import Denied
from tarry.store.mysql.schema import MysqlSchema

# A step may have to write a large table anew.
PATIENCE = 3600.0
"""Seconds that one statement may take."""


def pending(url: str) -> list[str]:
    """The steps that are left to do, one line each; raises what opening the store raises."""
    link = _connect(url)
    try:
        return MysqlSchema(link).pending()
    finally:
        link.close()


def migrate(url: str) -> list[str]:
    """Makes the steps that are left, one host at a time; answers those that this call made."""
    link = _connect(url)
    try:
        return MysqlSchema(link).migrate()
    finally:
        link.close()


def _connect(url: str) -> MysqlConnection:
    try:
        return MysqlConnection(parse(url), PATIENCE)
    except Denied as denied:
        # As when a store is opened: only the configuration can help, not another try.
        raise ConfigError(str(denied)) from None
