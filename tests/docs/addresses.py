"""The addresses on pages, and those that a test has in their place."""

import itertools
import re
from collections.abc import Callable
from typing import Any

from tests.docs.blocks import Block
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.server import free_port

PORTS = re.compile(r"(?<![\d.])(7800|7801|8000|11300)(?!\d)")
REDIS, POSTGRES = "localhost:6379", "shop@localhost/shop"
_NUMBERS = itertools.count()


def readdress(blocks: list[Block], fixture: Callable[[str], Any]) -> list[Block]:
    """The blocks with free ports; `fixture` starts the servers that they name."""
    ports: dict[str, str] = {}
    named = _servers("".join(block.text for block in blocks if not block.not_run), fixture)

    def change(text: str) -> str:
        for shown, real in named.items():
            text = text.replace(shown, real)
        return PORTS.sub(lambda port: ports.setdefault(port[1], str(free_port())), text)

    return [block._replace(text=change(block.text)) for block in blocks]


def _servers(text: str, fixture: Callable[[str], Any]) -> dict[str, str]:
    named: dict[str, str] = {}
    if REDIS in text:
        redis: RedisServer = fixture("redis_server")
        redis.empty()
        named[REDIS] = f"127.0.0.1:{redis.port}"
    if POSTGRES in text:
        postgres: PostgresServer = fixture("postgres_server")
        database = f"page{next(_NUMBERS)}"
        postgres.call(f"CREATE DATABASE {database}")
        named[POSTGRES] = f"postgres@127.0.0.1:{postgres.port}/{database}"
    return named
