"""Migrates the schemas of stores on servers, when an operator asks for it.

An embedded store migrates itself when it is opened.
"""
# Not at the opening: workers of several versions share these stores.

import importlib
from typing import Any

from tarry.errors import ConfigError

_MODULES = {
    "postgresql": "tarry.store.postgres.migrate",
    "postgres": "tarry.store.postgres.migrate",
    "mysql": "tarry.store.mysql.schema",
    "mariadb": "tarry.store.mysql.schema",
    **dict.fromkeys(("redis", "rediss"), "tarry.store.redis.migrate"),
}


def pending(url: str) -> list[str]:
    """What `migrate` would do to the store at that URL, one line for each step; raises what opening it raises."""
    module = _module(url)
    return list(module.pending(url)) if module else []


def migrate(url: str) -> list[str]:
    """Migrates the store while workers of the version before go on; returns the steps that this call did."""
    module = _module(url)
    return list(module.migrate(url)) if module else []


def _module(url: str) -> Any:
    name = _MODULES.get(url.partition(":")[0].partition("+")[0])
    try:
        return importlib.import_module(name) if name else None
    except ImportError as error:
        extra = str(name).split(".")[2]
        raise ConfigError(f'this store needs its driver: pip install "tarry[{extra}]" ({error})') from None
