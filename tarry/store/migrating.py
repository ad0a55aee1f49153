"""Migrates the schemas of stores, when an operator asks for it.

Who opens a file makes the steps after which older programs go on, and the others while nobody else has it open. Who
opens a store on a server makes none: workers of several versions share it.
"""

import importlib
from typing import Any

from tarry.errors import ConfigError
from tarry.store.shards.shard import parse_shard_url

_MODULES = {
    "sqlite": "tarry.store.sqlite.migrate",
    "postgresql": "tarry.store.postgres.migrate",
    "postgres": "tarry.store.postgres.migrate",
    "mysql": "tarry.store.mysql.schema",
    "mariadb": "tarry.store.mysql.schema",
    **dict.fromkeys(("redis", "rediss"), "tarry.store.redis.migrate"),
}


def pending(url: str) -> list[str]:
    """What `migrate` would do to the store at that URL, one line for each step; raises what opening it raises."""
    module = _module(url)
    return list(module.pending(parse_shard_url(url)[0])) if module else []


def migrate(url: str) -> list[str]:
    """Migrates the store while workers of the version before go on; returns the steps that this call did."""
    module = _module(url)
    return list(module.migrate(parse_shard_url(url)[0])) if module else []


def _module(url: str) -> Any:
    name = _MODULES.get(url.partition(":")[0].partition("+")[0])
    try:
        return importlib.import_module(name) if name else None
    except ImportError as error:
        extra = str(name).split(".")[2]
        raise ConfigError(f'this store needs its driver: pip install "tarry[{extra}]" ({error})') from None
