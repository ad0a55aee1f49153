"""Wake-up over Redis by itself: a script of the test's own wakes, with the part of the store's scripts that wakes."""

import select
import threading
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from tarry.store.redis.link.base import Script
from tarry.store.redis.link.server import ServerLink
from tarry.store.redis.opening import server_link
from tarry.store.redis.url import parse_url
from tarry.store.rules.sleeper import FOLLOW, FULL, RESULT, WORK, Wakeup
from tarry.store.shared.wakeup.hub import HubWakeup
from tests.servers.redis import RedisServer, until

SOON = 15.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def link(server: RedisServer) -> Iterator[ServerLink]:
    link = server_link(parse_url(f"{server.url}?timeout=15s"))
    yield link
    link.close()


@pytest.fixture
def sleeper(link: ServerLink) -> Iterator[Wakeup]:
    sleeper = link.wakeup("{t}")
    yield sleeper
    sleeper.close()


WAKE = f"""
local lib = {{P = '{{t}}:', call = redis.call}}
{(files("tarry.store.redis") / "lua" / "wake.lua").read_text()}
lib.wake(ARGV[1])
"""


def wake(server: RedisServer, letters: str) -> None:
    said = server.call("EVAL", WAKE, "0", letters)
    assert not said, said


def heard(server: RedisServer, letter: str) -> int:
    """By how many processes."""
    return int(server.call("PUBLISH", f"{{t}}:wakeup:{letter}", ""))


def waiting(server: RedisServer) -> int:
    """How many processes are in line for work."""
    told = server.call("CLIENT", "LIST")
    return sum(" cmd=blpop " in line for line in told.splitlines())


def wakes(sleeper: Wakeup) -> bool:
    return bool(sleeper.wait(SOON))


@pytest.mark.parametrize(
    ("topic", "letters"),
    [
        (WORK + "a", "w"),
        (WORK, "c"),
        (FULL, "c"),
        (RESULT, "r"),
        (FOLLOW, "f"),
        (FOLLOW, "r"),
        (RESULT, "wfr"),
        (WORK, "fw"),
    ],
)
def test_who_hears_what(server: RedisServer, sleeper: Wakeup, topic: str, letters: str) -> None:
    sleeper.listen(topic)
    wake(server, letters)
    assert wakes(sleeper)


@pytest.mark.parametrize(
    ("topic", "others", "last"), [(FULL, "wrf", "c"), (RESULT, "wcf", "r"), (WORK, "rf", "c"), (FOLLOW, "wc", "f")]
)
def test_who_does_not(
    server: RedisServer, link: ServerLink, sleeper: Wakeup, topic: str, others: str, last: str
) -> None:
    """What is meant for others wakes nobody."""
    sleeper.listen(topic)
    other = link.wakeup("{t}")
    for letter in others:
        heard_by = {"w": WORK + "x", "c": FULL, "r": RESULT, "f": FOLLOW}[letter]
        other.listen(heard_by)
        wake(server, letter)
        assert wakes(other)
    assert sleeper.clear() == b""
    wake(server, last)
    assert wakes(sleeper)
    other.close()


def test_of_work_hears_one_of_each_kind(server: RedisServer, link: ServerLink) -> None:
    """Over all processes, in turn; and once more work comes, the next."""
    other = server_link(parse_url(server.url))
    sleepers = [where.wakeup("{t}") for where in (link, other)]
    apart = link.wakeup("{t}")
    for sleeper in sleepers:
        sleeper.listen(WORK + "a")
    apart.listen(WORK + "b")
    until(lambda: waiting(server) == 3, "all to stand in line")
    wake(server, "w")
    assert wakes(apart)
    until(lambda: [woken(sleeper) for sleeper in sleepers].count(True) == 1, "one of both to wake")
    wake(server, "w")
    until(lambda: all(woken(sleeper) for sleeper in sleepers), "the other one too")
    for sleeper in (*sleepers, apart):
        sleeper.close()
    other.close()


def woken(sleeper: Wakeup) -> bool:
    """Without waiting."""
    return bool(select.select(sleeper.filenos(), [], [], 0)[0])


def test_work_that_comes_before_anybody_sleeps(server: RedisServer, link: ServerLink, sleeper: Wakeup) -> None:
    """Who sleeps next looks once more."""
    sleeper.listen(WORK)
    sleeper.ignore()
    wake(server, "w")
    other = link.wakeup("{t}")
    other.listen(WORK)
    assert wakes(other)
    other.close()


def test_who_is_busy_passes_it_on(server: RedisServer, sleeper: Wakeup) -> None:
    """A process in line whose worker has found work by itself; and one that died there."""
    other, dead = server_link(parse_url(server.url)), server_link(parse_url(server.url))
    sleeper.listen(WORK)
    until(lambda: waiting(server) == 1, "the first to stand in line")
    sleeper.ignore()
    gone = dead.wakeup("{t}")
    gone.listen(WORK)
    until(lambda: waiting(server) == 2, "the second, too")
    gone.close()
    dead.close()
    far = other.wakeup("{t}")
    far.listen(WORK)
    wake(server, "w")
    assert wakes(far)
    assert sleeper.clear() == b""
    far.close()
    other.close()


def test_kinds_that_are_no_more_are_forgotten(server: RedisServer, sleeper: Wakeup) -> None:
    server.call("ZADD", "{t}:kinds", "1000", "long ago")
    sleeper.listen(WORK + "a")
    assert server.call("ZRANGE", "{t}:kinds", "0", "-1") == "a"


def test_few_connections(server: RedisServer, link: ServerLink) -> None:
    sleepers = [link.wakeup("{t}") for _ in range(5)]
    for sleeper in sleepers:
        sleeper.listen(WORK)
        sleeper.listen(FOLLOW)
    assert server.call("CLIENT", "LIST").count("name=tarry") == 2
    for sleeper in sleepers:
        sleeper.close()


def test_nobody_listens_for_long(server: RedisServer, sleeper: Wakeup) -> None:
    """Messages that wake nobody end by themselves; the next sleeper hears again."""
    sleeper.listen(RESULT)
    sleeper.ignore()
    assert heard(server, "r") == 1
    until(lambda: not heard(server, "r"), "the channel to be given up")
    for _ in range(3):
        sleeper.listen(RESULT)
        assert heard(server, "r") == 1
        assert wakes(sleeper)


@pytest.mark.parametrize("topic", [WORK, RESULT])
def test_a_connection_that_breaks(server: RedisServer, sleeper: Wakeup, topic: str) -> None:
    """Who sleeps then looks; and hears again soon."""
    for _ in range(3):
        sleeper.listen(topic)
        server.call("CLIENT", "KILL", "TYPE", "pubsub" if topic == RESULT else "normal", "SKIPME", "yes")
        assert wakes(sleeper)
        until(lambda: hears_again(sleeper, topic), "the listeners to be connected again")
        sleeper.listen(topic)
        wake(server, "wr")
        assert wakes(sleeper)


def hears_again(sleeper: Wakeup, topic: str) -> bool:
    assert isinstance(sleeper, HubWakeup)
    sleeper.clear()
    sleeper.listen(topic)
    return sleeper.is_receiving()


def test_sleepers_without_a_connection_look_by_themselves(server: RedisServer, sleeper: Wakeup) -> None:
    sleeper.listen(WORK)
    server.kill()
    sleeper.wait(SOON)
    start = time.monotonic()
    for _ in range(4):
        sleeper.listen(WORK)
        sleeper.wait(SOON)
    assert time.monotonic() - start < SOON
    server.start()
    until(lambda: hears_again(sleeper, WORK), "the listeners to be connected again")
    wake(server, "w")
    assert wakes(sleeper)


def test_no_server_at_first(tmp_path: Path) -> None:
    """A sleeper can be had all the same, at once, and hears when the server is there."""
    server = RedisServer(tmp_path / "late")
    link = server_link(parse_url(f"{server.url}?timeout=15s"))
    start = time.monotonic()
    sleeper = link.wakeup("{t}")
    sleeper.listen(WORK)
    sleeper.wait(SOON)
    assert time.monotonic() - start < SOON
    server.start()
    until(lambda: hears_again(sleeper, WORK), "the listeners to be connected")
    wake(server, "w")
    assert wakes(sleeper)
    sleeper.close()
    link.close()
    server.kill()


def test_a_silent_server(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked whether it is there, and given up when it does not say so."""
    monkeypatch.setattr("tarry.store.redis.link.wakeup.ASK_AFTER", 0.05)
    link = server_link(parse_url(f"{server.url}?timeout=200ms"))
    sleeper = link.wakeup("{t}")
    sleeper.listen(RESULT)
    server.halt()
    assert wakes(sleeper), "it looks when the connection is lost"
    server.resume()
    until(lambda: hears_again(sleeper, RESULT), "the listeners to be connected again")
    sleeper.close()
    link.close()


def test_may_not_subscribe(server: RedisServer) -> None:
    """Then sleepers look by themselves, and everything else works, waking too."""
    server.call("ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all", "resetchannels")
    link = server_link(parse_url(server.url.replace("//", "//ann:secret@")))
    sleeper = link.wakeup("{t}")
    sleeper.listen(RESULT)
    start = time.monotonic()
    sleeper.wait(SOON)
    assert time.monotonic() - start < SOON
    assert link.run(Script("wake", WAKE), [], ["wr"]) is None
    sleeper.close()
    link.close()


def test_closing_ends_the_threads(server: RedisServer) -> None:
    link = server_link(parse_url(server.url))
    sleeper = link.wakeup("{t}")
    sleeper.listen(WORK)
    assert ours() == {"tarry-wakeup", "tarry-wakeup-line"}
    sleeper.close()
    link.close()
    assert not ours()
    sleeper = link.wakeup("{t}")
    sleeper.listen(WORK)
    assert not ours(), "a closed link has sleepers that nothing wakes"
    sleeper.close()


def ours() -> set[str]:
    return {thread.name for thread in threading.enumerate()} & {"tarry-wakeup", "tarry-wakeup-line"}
