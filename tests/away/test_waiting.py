"""Whoever waits for a store that is away costs next to nothing and says so seldom, however the store is away; and says
when it is back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.away.proxy import Proxy
from tests.away.waiters import KINDS
from tests.cli.project import alive
from tests.servers.kept_tables import remove_board
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.server import Missing, Server
from tests.worker.bench import until

URLS = {
    RedisServer: "redis://127.0.0.1:{}/0",
    PostgresServer: "postgresql://postgres@127.0.0.1:{}/postgres",
    MariadbServer: "mysql://root@127.0.0.1:{}/tarry",
}
AFTER, FOR = 6.0, 9.0
"""Seconds: from the outage to the first look at what a process has used, and from there to the second."""
MOST_CPU = 0.01
_TICKS = os.sysconf("SC_CLK_TCK")


class Outages:
    """Two servers, and every manner of being away, all at once: whoever waits uses no CPU that another would need."""

    def __init__(self, kind: type[Server], directory: Path) -> None:
        # What waits for a job fails once the job is lost.
        options = ("--appendonly", "yes") if kind is RedisServer else ()
        names = (f"away-{kind.__name__.lower()}-{number}" for number in (1, 2))
        self.killed, self.stopped = (kind(directory / name, *options) for name in names)
        self.proxies: list[Proxy] = []
        self.urls: dict[str, str] = {}

    def start(self) -> None:
        """Afterwards there is a URL for each manner."""
        self.killed.start()
        self.stopped.start()
        # Half of those that wait on each: a server takes only so many connections.
        self.proxies = [Proxy(self.killed.port), Proxy(self.stopped.port)]
        ports = [place.port for place in (self.killed, self.stopped)] + [proxy.port for proxy in self.proxies]
        url = URLS[type(self.killed)]
        names = ("killed", "stopped", "refusing", "silent")
        self.urls = {how: url.format(port) for how, port in zip(names, ports, strict=True)}

    def begin(self) -> None:
        """All are away."""
        refusing, silent = self.proxies
        refusing.refuses()
        silent.is_silent()
        self.killed.kill()
        self.stopped.halt()

    def end_outages(self) -> None:
        """All are back."""
        self.killed.start()
        self.stopped.resume()
        for proxy in self.proxies:
            proxy.passes()

    def end(self) -> None:
        """Nothing is left."""
        for proxy in self.proxies:
            proxy.close()
        self.stopped.resume()
        for server in (self.killed, self.stopped):
            server.kill()
        if isinstance(self.killed, MariadbServer):
            for url in self.urls.values():
                remove_board(url)


@pytest.fixture(params=list(URLS), ids=lambda kind: kind.__name__.removesuffix("Server").lower())
def outages(request: pytest.FixtureRequest, servers_directory: Path) -> Iterator[Outages]:
    outages = Outages(request.param, servers_directory)
    try:
        outages.start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield outages
    outages.end()


class Waiter:
    """A process of one kind that waits."""

    def __init__(self, kind: str, how: str, url: str, directory: Path) -> None:
        self.kind = f"{kind}, {how}"
        self._log = directory / f"{kind}-{how}.log"
        self.words = (kind, url, str(self._log))
        self.pid = 0

    def lines(self) -> list[str]:
        """What it has said up to now."""
        return self._log.read_text().splitlines()

    def knows_that_it_is_back(self) -> bool:
        """Its last word is not that the store is away."""
        return any(said in self.lines()[-1] for said in (" after ", "forwarded "))

    def cpu(self) -> float:
        """Seconds that it has used up to now."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def told(self) -> str:
        """Who it is, and the end of what it has said."""
        return f"{self.kind}, {self.pid}: {self._log.read_text()[-2000:] if self._log.exists() else ''}"

    def end(self) -> None:
        """Fails if it has ended by itself."""
        assert alive(self.pid), f"has ended: {self.told()}"


@contextmanager
def all_waiting(waiters: Sequence[Waiter]) -> Iterator[None]:
    """Meanwhile each of them waits."""
    command = [sys.executable, "-m", "tests.away.waiters", *(word for waiter in waiters for word in waiter.words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            left = iter(waiters)
            said: list[str] = []
            while said.count("ready") < len(waiters):
                said.append(process.stdout.readline().strip())
                if said[-1].isdigit():
                    next(left).pid = int(said[-1])
                elif said[-1] != "ready":
                    raise AssertionError(f"{said[-1]!r}: {[waiter.told() for waiter in waiters]}")
            yield
            for waiter in waiters:
                waiter.end()
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.timeout(180)
def test_who_waits_uses_next_to_nothing_and_says_little(outages: Outages, tmp_path: Path) -> None:
    waiters = [Waiter(kind, how, url, tmp_path) for how, url in outages.urls.items() for kind in KINDS]
    with all_waiting(waiters):
        before = {waiter.kind: len(waiter.lines()) for waiter in waiters}
        outages.begin()
        # An outage begins connection by connection: who has lost one may be answered on the next, and rightly says so.
        whole, began = {waiter.kind: len(waiter.lines()) for waiter in waiters}, time.monotonic()
        time.sleep(AFTER)
        used = {waiter.kind: waiter.cpu() for waiter in waiters}
        time.sleep(FOR)
        used = {waiter.kind: waiter.cpu() - used[waiter.kind] for waiter in waiters}
        said = {waiter.kind: waiter.lines()[whole[waiter.kind] :] for waiter in waiters}
        elapsed = time.monotonic() - began
        # Who waits for an answer as long as it may has nothing to say before.
        until(lambda: all(len(waiter.lines()) > before[waiter.kind] for waiter in waiters))
        outages.end_outages()
        until(lambda: all(waiter.knows_that_it_is_back() for waiter in waiters))
    assert {kind: seconds / FOR for kind, seconds in used.items() if seconds / FOR > MOST_CPU} == {}
    # A line when it has begun, and one in ten seconds from then on.
    assert {kind: lines for kind, lines in said.items() if len(lines) > 1 + elapsed / 10} == {}
