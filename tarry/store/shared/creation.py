"""Whether a store may be made where there is none: not by whoever only reads. And which ones this process has made."""

import contextlib
import logging
from collections.abc import Iterator

from msgspec import Struct

from tarry.errors import StoreMissing

log = logging.getLogger("tarry.store")


class _CreationRule(Struct, frozen=True):
    creates: bool = True
    stands_in: bool = True
    on_servers: bool = True


_rule = _CreationRule()
created: list[str] = []
"""Where this process has made stores: their URLs, without passwords."""
missing: list[str] = []
"""Where it has found none, and only read."""


@contextlib.contextmanager
def only_existing(stands_in: bool = True, on_servers: bool = True) -> Iterator[None]:
    """Within the block, a store that is not there is not made when it is opened: an empty one stands in for it; or, if
    not `stands_in`, StoreMissing is raised, for whoever tries again. For the whole process.

    on_servers: False: it holds for files only, and the tables of a server are made."""
    global _rule
    before, _rule = _rule, _CreationRule(False, stands_in, on_servers)
    try:
        yield
    finally:
        _rule = before


def check_creation(url: str) -> None:
    """Called before a store is made; StoreMissing. url: without its password."""
    if not _rule.creates and (_rule.on_servers or url.startswith("sqlite:")):
        raise StoreMissing(url)
    log.info("new store at %s", url)
    created.append(url)


def stands_in(error: StoreMissing) -> str:
    """The URL for which an empty store stands in; raises the error if none is to."""
    if not _rule.stands_in:
        raise error
    missing.append(error.url)
    return error.url
