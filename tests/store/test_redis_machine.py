"""Random histories, in which the Redis store must answer every call as the reference does, and keep what it keeps."""

from typing import ClassVar

import pytest

from tarry.store.opening import open_store
from tarry.store.rules.base import Store
from tests.servers.redis import RedisServer
from tests.store.test_machine import Histories, histories


class RedisHistories(Histories):
    server: ClassVar[RedisServer]

    def opened(self) -> Store:
        self.server.empty()
        return open_store(self.server.url)


@pytest.fixture(autouse=True, scope="module")
def _served(redis_server: RedisServer) -> None:
    RedisHistories.server = redis_server


TestRedis = pytest.mark.timeout(400)(RedisHistories.TestCase)
TestRedis.settings = histories(20)
