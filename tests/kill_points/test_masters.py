"""That a story with a master sees what is wrong: a ledger that says what is not so, and a file that nobody needs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.testing.history_check import Put
from tests.kill_points.masters import Host, take_over


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.close()


def test_what_is_lost_and_what_is_left_is_told(host: Host) -> None:
    host.serve()
    host.note("one")
    host.end()
    host.ledger.write(Put("ghost", 1))
    host.write("run/stale.sock", "")
    told = list(take_over(host))
    assert [one.partition(":")[0] for one in told] == ["stale.sock is left of a master that has ended", "lost"]
