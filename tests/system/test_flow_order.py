"""The order of docs/flows.md, as it stands there, whose worker is killed at every line of its tasks, one after the
other: it is charged once, shipped once, and the customer is asked once."""

import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.forked import run_module
from tests.docs.pages import blocks_of
from tests.servers.redis import RedisServer

SIDE_BY_SIDE = ("charged 7", "packed 7")
"""While a worker does the one, the end of the other may not be stored yet."""
DONE = [
    "asked for a review of 7",
    "charged 7",
    "packed 7",
    "reminded of 7",
    "shipped what was packed 7 and charged 7",
]
FEWEST_LINES, MOST_LINES = 14, 60
"""That the tasks come to in all; a task that sleeps comes to its first lines again."""


def example() -> str:
    """The last example of the story, which has all of it."""
    (found,) = (block.text for block in blocks_of("docs/flows.md") if "async def review" in block.text)
    return found


class Shop:
    """Where an order is run, by one process after the other."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url, self._directory = url, directory
        directory.mkdir()
        (directory / "order.py").write_text(example(), encoding="utf-8")
        (directory / "time").write_text(str(time.time_ns() // 1000))

    def run(self, kill_at: int) -> int | None:
        """Runs a process to its end: how many lines its tasks came to; None: it was killed."""
        ran = run_module("tests.system.flow_order", [self._url, str(self._directory), str(kill_at)])
        if ran.returncode == -signal.SIGKILL:
            return None
        assert ran.returncode == 0, ran.stderr
        return int(ran.stdout)

    def lines(self, ledger: str) -> list[str]:
        """What is in a ledger, each as often as it is."""
        return sorted((self._directory / ledger).read_text().splitlines())


def open_shop(request: pytest.FixtureRequest, directory: Path) -> Shop:
    if request.param == "sqlite":
        return Shop(f"sqlite:///{directory}.db", directory)
    server: RedisServer = request.getfixturevalue("redis_server")
    server.empty()
    return Shop(server.url, directory)


# `make test` has each line in one of the stores, and each store at every second line.
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("store", "first"),
    [
        ("sqlite", 1),
        ("redis", 2),
        pytest.param("sqlite", 2, marks=pytest.mark.deep),
        pytest.param("redis", 1, marks=pytest.mark.deep),
    ],
)
def test_an_order_whose_worker_is_killed_at_any_line_is_done_once(
    store: str, first: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    request.param = store
    for kill_at in range(first, MOST_LINES, 2):
        shop = open_shop(request, tmp_path / str(kill_at))
        lines = shop.run(kill_at)
        if lines is None:
            assert shop.run(0) is not None
        assert shop.lines("done") == DONE, f"killed at line {kill_at}"
        asked = Counter(shop.lines("asked"))
        again = {what: times for what, times in asked.items() if times > 1}
        assert again.keys() <= (set(SIDE_BY_SIDE) if lines is None else set()), f"killed at line {kill_at}"
        assert sum(again.values()) <= 2
        if lines is not None:
            assert lines >= FEWEST_LINES
            return
    raise AssertionError("its tasks come to too many lines")
