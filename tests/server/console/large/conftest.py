from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.server.console.large.place import LargePlace
from tests.servers.fixtures import started
from tests.servers.redis import RedisServer


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LargePlace]:
    """A master whose store has a million jobs."""
    directory = tmp_path_factory.mktemp("large")
    url = f"sqlite:///{directory}/tarry.db"
    if request.param == "redis":
        url = request.getfixturevalue("own_redis").url
    with closing(LargePlace(directory, url)) as place:
        place.fill()
        place.serve()
        yield place


@pytest.fixture(scope="module")
def own_redis(servers_directory: Path) -> Iterator[RedisServer]:
    """It keeps the million for this module only."""
    yield from started(RedisServer(servers_directory / "large"))
