"""Every feature at once, while workers, keeper, master and store are killed or halted. `make storm` runs it."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import seeds
from tests.servers.server import Missing
from tests.system.storm import ENDS_WITHIN, SERVERS, Storm

SECONDS = float(os.environ.get("SOAK_SECONDS", "60"))


@pytest.fixture(params=["sqlite", *SERVERS])
def storm(request: pytest.FixtureRequest, tmp_path: Path, servers_directory: Path) -> Iterator[Storm]:
    url, server = f"sqlite:///{tmp_path}/tarry.db", None
    if request.param != "sqlite":
        make, pattern = SERVERS[request.param]
        server = make(servers_directory / f"storm-{request.param}")
        try:
            server.start()
        except Missing as missing:
            pytest.skip(str(missing))
        url = pattern.format(server.port)
    storm = Storm(tmp_path, url, server, seeds.seed())
    yield storm
    storm.close()


@pytest.mark.soak
@pytest.mark.timeout(SECONDS * 2 + ENDS_WITHIN + 240)
def test_every_promise_holds_amid_a_storm(storm: Storm) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(storm.chance.uniform(0.2, 3))
        storm.act()
    storm.finish()
    storm.check()
    storm.check_keys()
    storm.stopped()
