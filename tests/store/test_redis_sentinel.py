"""A link that asks sentinels where its server is, and follows it."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tarry.errors import ConfigError, StoreError, StoreUnavailable
from tarry.store.redis.link.base import Script
from tarry.store.redis.link.server import ServerLink
from tarry.store.redis.opening import server_link
from tarry.store.redis.url import parse_url
from tarry.store.rules.sleeper import WORK, Wakeup
from tarry.store.shared.wakeup.hub import HubWakeup
from tests.servers.redis import Watched, until

KEEP = Script("keep", "return redis.call('SADD', KEYS[1], ARGV[1])", repeatable=True)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    watched.start()
    yield watched
    watched.stop()


@pytest.fixture
def link(watched: Watched) -> Iterator[ServerLink]:
    link = server_link(parse_url(f"{watched.url}?timeout=15s"))
    yield link
    link.close()


def heard(sleeper: Wakeup) -> bool:
    """Whether wake-ups come from where the server is now."""
    sleeper.listen(WORK)
    return isinstance(sleeper, HubWakeup) and sleeper.is_receiving()


class Ledger:
    """Writes numbers in a thread of its own until told to stop; which of them were acknowledged."""

    def __init__(self, keep: Callable[[int], object]) -> None:
        self.kept: list[int] = []
        self.errors: list[StoreError] = []
        self._keep = keep
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> "Ledger":
        self._thread.start()
        until(lambda: len(self.kept) > 100, "the first hundred")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def grows(self) -> None:
        """Returns once it goes on."""
        had = len(self.kept)
        until(lambda: len(self.kept) > had + 100, f"more than {had}; {self.errors[-1:]}")

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                self._keep(number)
            except StoreUnavailable as error:
                self.errors.append(error)
            else:
                self.kept.append(number)


def members(link: ServerLink) -> set[int]:
    return {int(member) for member in link.command("SMEMBERS", "{t}")}


def test_the_master_is_found(redis_watched: Watched) -> None:
    link = server_link(parse_url(redis_watched.url))
    link.command("SET", "here", 1)
    assert redis_watched.master.call("GET", "here") == "1"
    link.close()


@pytest.mark.chaos
def test_killed_under_load(watched: Watched, link: ServerLink) -> None:
    """Calls wait for the new master, inside their time limit; what a replica had confirmed is there."""

    def keep(number: int) -> None:
        link.run(KEEP, ["{t}"], [number])
        if number > 1000:
            link.wait_for_replicas(1, 0.5, False)

    sleeper = link.wakeup("{t}")
    with Ledger(keep) as ledger:
        until(lambda: len(ledger.kept) > 1100, "some that were confirmed")
        killed = watched.master
        killed.kill()
        until(lambda: watched.master is not killed, "the sentinels to choose")
        # Alone now: what it stores nobody can confirm, and says so.
        until(lambda: any("0 of 1" in str(error) for error in ledger.errors), "that to be said")
        killed.start()
        # The sentinels would say so too, in some ten seconds.
        killed.call("REPLICAOF", "127.0.0.1", str(watched.master.port))
        ledger.grows()
    assert set(ledger.kept[1000:]) <= members(link)
    sleeper.listen(WORK)
    until(lambda: heard(sleeper), "the listeners to follow")
    sleeper.close()


@pytest.mark.chaos
def test_a_planned_failover_under_load(watched: Watched, link: ServerLink) -> None:
    """The old master lives on as a replica: nobody writes there any more, and nothing fails."""
    with Ledger(lambda number: link.run(KEEP, ["{t}"], [number])) as ledger:
        before = watched.master
        watched.sentinels[0].call("SENTINEL", "FAILOVER", "tarry")
        until(lambda: watched.master is not before, "the failover")
        ledger.grows()
    assert ledger.errors == []


def test_sentinels_may_be_away(watched: Watched) -> None:
    watched.sentinels[0].kill()
    watched.sentinels[1].halt()
    link = server_link(parse_url(f"{watched.url}?timeout=15s"))
    assert link.command("PING") == b"PONG"
    link.close()
    watched.sentinels[1].resume()


def test_no_sentinel_at_all(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no sentinel answers"):
        server_link(parse_url("redis+sentinel://127.0.0.1:1/tarry/0")).check()


def test_wrong_in_the_url(redis_watched: Watched) -> None:
    with pytest.raises(ConfigError, match="watches no service 'other'"):
        server_link(parse_url(redis_watched.url.replace("/tarry/", "/other/"))).check()
    with pytest.raises(ConfigError, match=r"is a single server: begin the URL with redis://"):
        server_link(parse_url(f"redis+sentinel://127.0.0.1:{redis_watched.first.port}/tarry")).check()
    with pytest.raises(ConfigError, match=r"is a sentinel: begin the URL with redis\+sentinel://"):
        server_link(parse_url(redis_watched.sentinels[0].url)).check()
