"""Schemas that are brought up to date when somebody says so: those on servers, which workers of several versions share.

An embedded store does it by itself when it is opened, and Redis has none.
"""

import importlib
from typing import Any

from tarry.errors import ConfigError

_MODULES = {
    "postgresql": "tarry.store.postgres.migrate",
    "postgres": "tarry.store.postgres.migrate",
    "mysql": "tarry.store.mysql.migrate",
    "mariadb": "tarry.store.mysql.migrate",
}


def pending(url: str) -> list[str]:
    """What `migrate` would do to the store at that URL, a line for each step; raises what opening it raises."""
    module = _module(url)
    return list(module.pending(url)) if module else []


def migrate(url: str) -> list[str]:
    """Does it, while workers of the version before go on; answers what was done here, in the same lines."""
    module = _module(url)
    return list(module.migrate(url)) if module else []


def _module(url: str) -> Any:
    name = _MODULES.get(url.partition(":")[0])
    try:
        return importlib.import_module(name) if name else None
    except ImportError as error:
        extra = "postgres" if name == _MODULES["postgres"] else "mysql"
        raise ConfigError(f'this store needs its driver: pip install "tarry[{extra}]" ({error})') from None
