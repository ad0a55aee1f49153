"""What push asks of a store, on each server: the same tests once more, with other stores."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry import App
from tarry.store.opening import open_store
from tests.push.fixture import DeliveryFixture
from tests.push.server import Server
from tests.push.test_flow import (
    test_never_more_at_once_than_it_says,
    test_two_workers_agree,
)
from tests.push.test_registry import (
    test_a_change_reaches_who_delivers_and_who_enqueues,
    test_a_new_task_reaches_a_worker_that_knew_of_none,
    test_the_jobs_of_a_removed_task_wait_and_go_out_when_it_is_back,
    test_the_next_of_a_key_waits_until_the_one_before_is_settled,
)
from tests.servers.redis import RedisServer

__all__ = [
    "test_a_change_reaches_who_delivers_and_who_enqueues",
    "test_a_new_task_reaches_a_worker_that_knew_of_none",
    "test_never_more_at_once_than_it_says",
    "test_the_jobs_of_a_removed_task_wait_and_go_out_when_it_is_back",
    "test_the_next_of_a_key_waits_until_the_one_before_is_settled",
    "test_two_workers_agree",
]


@pytest.fixture(params=["redis_server", "postgres_url", "mariadb_url"])
def any_delivery(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> Iterator[DeliveryFixture]:
    place = request.getfixturevalue(request.param)
    if isinstance(place, RedisServer):
        place.empty()
    url = place.url if isinstance(place, RedisServer) else place
    delivery = DeliveryFixture(App(url, closures=True), lambda: open_store(url, durable=False), server, tmp_path)
    yield delivery
    delivery.close()


@pytest.fixture
def delivery(any_delivery: DeliveryFixture) -> DeliveryFixture:
    return any_delivery
