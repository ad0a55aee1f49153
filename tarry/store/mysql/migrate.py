"""For `tarry migrate`: what it would do to the tables in a MySQL or MariaDB server, and doing it."""

from tarry.errors import ConfigError
from tarry.store.mysql import schema
from tarry.store.mysql.address import parsed
from tarry.store.mysql.errors import Denied
from tarry.store.mysql.link import Link

PATIENCE = 3600.0
"""Seconds that one statement may take: a large table may have to be written anew."""


def pending(url: str) -> list[str]:
    """The steps that are left to do, a line for each; raises what opening the store raises."""
    link = _linked(url)
    try:
        return schema.pending(link)
    finally:
        link.close()


def migrate(url: str) -> list[str]:
    """Does them, one host at a time; answers what was done here."""
    link = _linked(url)
    try:
        return schema.migrate(link)
    finally:
        link.close()


def _linked(url: str) -> Link:
    try:
        return Link(parsed(url), PATIENCE)
    except Denied as denied:
        raise ConfigError(str(denied)) from None
