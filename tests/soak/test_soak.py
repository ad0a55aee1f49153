"""One of each trouble, and nothing is violated; what is put into the ledger besides is found."""

from pathlib import Path

import pytest

from tarry.testing.history_check import Put, Violation
from tarry.testing.ledger import Ledger
from tests.servers.server import Missing
from tests.soak.running import Plan, started_storm
from tests.soak.watching import Watcher


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", ["sqlite", "shards", "redis", "postgres", "mariadb"])
def test_one_of_each_trouble(store: str, servers_directory: Path) -> None:
    directory = servers_directory / f"soak-{store}"
    directory.mkdir()
    try:
        _go_through(store, directory)
    except Missing as missing:
        pytest.skip(str(missing))


def _go_through(store: str, directory: Path) -> None:
    with started_storm(Plan(store, 0.0, 1, slowness=1.0), directory, []) as storm:
        watcher = Watcher(storm)
        watcher.start()
        for trouble in storm.troubles():
            trouble()
        storm.finish()
        watcher.end()
        storm.stopped()
        names = {series.name.split()[0] for series in watcher.series}
        assert names >= {"memory", "descriptors", "threads", "files", "connections" if store == "redis" else "rows"}
        assert storm.violations() == []
        planted = Put("planted", storm.now())
        Ledger(storm.directory / "history").write(planted)
        (found,) = storm.violations()
        assert isinstance(found, Violation)
        assert (found.rule, found.job) == ("lost", "planted")
