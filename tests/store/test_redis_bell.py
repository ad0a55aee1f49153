"""Bells over Redis, by themselves: rung by a script of the test's own, with the part of the store's that rings."""

import threading
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from tarry.store.redis.bell import HubBell
from tarry.store.redis.link import Script
from tarry.store.redis.link_server import ServerLink
from tarry.store.redis.link_target import linked
from tarry.store.redis.url import parsed
from tarry.store.shared.bell import FOLLOW, FULL, RESULT, WORK, Bell
from tests.servers.redis import RedisServer, until

CHANNEL = "{t}:bell"
SOON = 15.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def link(server: RedisServer) -> Iterator[ServerLink]:
    link = linked(parsed(f"{server.url}?timeout=15s"))
    yield link
    link.close()


@pytest.fixture
def bell(link: ServerLink) -> Iterator[Bell]:
    bell = link.bell(CHANNEL)
    yield bell
    bell.close()


RING = f"""
local lib = {{P = '{{t}}:', call = redis.call}}
{(files("tarry.store.redis") / "lua" / "ring.lua").read_text()}
lib.ring(ARGV[1])
"""


def ring(server: RedisServer, letters: str) -> None:
    said = server.call("EVAL", RING, "0", letters)
    assert not said, said


def heard(server: RedisServer, letter: str) -> int:
    """By how many processes."""
    return int(server.call("PUBLISH", f"{CHANNEL}:{letter}", ""))


def waiting(server: RedisServer) -> int:
    """How many processes are in line for work."""
    told = server.call("CLIENT", "LIST")
    return sum(" cmd=blpop " in line for line in told.splitlines())


def rings(bell: Bell) -> bool:
    return bool(bell.wait(SOON))


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
def test_who_hears_what(server: RedisServer, bell: Bell, topic: str, letters: str) -> None:
    bell.arm(topic)
    ring(server, letters)
    assert rings(bell)


@pytest.mark.parametrize(
    ("topic", "others", "last"), [(FULL, "wrf", "c"), (RESULT, "wcf", "r"), (WORK, "rf", "c"), (FOLLOW, "wc", "f")]
)
def test_who_does_not(server: RedisServer, link: ServerLink, bell: Bell, topic: str, others: str, last: str) -> None:
    """What is meant for others rings nobody."""
    bell.arm(topic)
    other = link.bell(CHANNEL)
    for letter in others:
        heard_by = {"w": WORK + "x", "c": FULL, "r": RESULT, "f": FOLLOW}[letter]
        other.arm(heard_by)
        ring(server, letter)
        assert rings(other)
    assert bell.clear() == b""
    ring(server, last)
    assert rings(bell)
    other.close()


def test_of_work_hears_one_of_each_kind(server: RedisServer, link: ServerLink) -> None:
    """Over all processes, in turn; and once more work comes, the next."""
    other = linked(parsed(server.url))
    bells = [where.bell(CHANNEL) for where in (link, other)]
    apart = link.bell(CHANNEL)
    for bell in bells:
        bell.arm(WORK + "a")
    apart.arm(WORK + "b")
    until(lambda: waiting(server) == 3, "all to stand in line")
    ring(server, "w")
    assert rings(apart)
    until(lambda: [woken(bell) for bell in bells].count(True) == 1, "one of both to wake")
    ring(server, "w")
    until(lambda: all(woken(bell) for bell in bells), "the other one too")
    for bell in (*bells, apart):
        bell.close()
    other.close()


def woken(bell: Bell) -> bool:
    """Without waiting."""
    assert isinstance(bell, HubBell)
    return not bell.topic


def test_work_that_comes_before_anybody_sleeps(server: RedisServer, link: ServerLink, bell: Bell) -> None:
    """Who sleeps next looks once more."""
    bell.arm(WORK)
    bell.disarm()
    ring(server, "w")
    other = link.bell(CHANNEL)
    other.arm(WORK)
    assert rings(other)
    other.close()


def test_who_is_busy_passes_it_on(server: RedisServer, bell: Bell) -> None:
    """A process in line whose worker has found work by itself; and one that died there."""
    other, dead = linked(parsed(server.url)), linked(parsed(server.url))
    bell.arm(WORK)
    until(lambda: waiting(server) == 1, "the first to stand in line")
    bell.disarm()
    gone = dead.bell(CHANNEL)
    gone.arm(WORK)
    until(lambda: waiting(server) == 2, "the second, too")
    gone.close()
    dead.close()
    far = other.bell(CHANNEL)
    far.arm(WORK)
    ring(server, "w")
    assert rings(far)
    assert bell.clear() == b""
    far.close()
    other.close()


def test_kinds_that_are_no_more_are_forgotten(server: RedisServer, bell: Bell) -> None:
    server.call("ZADD", "{t}:kinds", "1000", "long ago")
    bell.arm(WORK + "a")
    assert server.call("ZRANGE", "{t}:kinds", "0", "-1") == "a"


def test_few_connections(server: RedisServer, link: ServerLink) -> None:
    bells = [link.bell(CHANNEL) for _ in range(5)]
    for bell in bells:
        bell.arm(WORK)
        bell.arm(FOLLOW)
    assert server.call("CLIENT", "LIST").count("name=tarry") == 2
    for bell in bells:
        bell.close()


def test_nobody_listens_for_long(server: RedisServer, bell: Bell) -> None:
    """Rings for nothing end by themselves; the next sleeper hears again."""
    bell.arm(RESULT)
    bell.disarm()
    assert heard(server, "r") == 1
    until(lambda: not heard(server, "r"), "the channel to be given up")
    for _ in range(3):
        bell.arm(RESULT)
        assert heard(server, "r") == 1
        assert rings(bell)


@pytest.mark.parametrize("topic", [WORK, RESULT])
def test_a_connection_that_breaks(server: RedisServer, bell: Bell, topic: str) -> None:
    """Who sleeps then looks; and hears again soon."""
    for _ in range(3):
        bell.arm(topic)
        server.call("CLIENT", "KILL", "TYPE", "pubsub" if topic == RESULT else "normal", "SKIPME", "yes")
        assert rings(bell)
        until(lambda: hears_again(bell, topic), "the bells to be connected again")
        bell.arm(topic)
        ring(server, "wr")
        assert rings(bell)


def hears_again(bell: Bell, topic: str) -> bool:
    assert isinstance(bell, HubBell)
    bell.clear()
    bell.arm(topic)
    return all(source.heard for source in bell.sources)


def test_deaf_sleepers_look_by_themselves(server: RedisServer, bell: Bell) -> None:
    bell.arm(WORK)
    server.kill()
    bell.wait(SOON)
    start = time.monotonic()
    for _ in range(4):
        bell.arm(WORK)
        bell.wait(SOON)
    assert time.monotonic() - start < SOON
    server.start()
    until(lambda: hears_again(bell, WORK), "the bells to be connected again")
    ring(server, "w")
    assert rings(bell)


def test_no_server_at_first(tmp_path: Path) -> None:
    """A bell can be had all the same, at once, and hears when the server is there."""
    server = RedisServer(tmp_path / "late")
    link = linked(parsed(f"{server.url}?timeout=15s"))
    start = time.monotonic()
    bell = link.bell(CHANNEL)
    bell.arm(WORK)
    bell.wait(SOON)
    assert time.monotonic() - start < SOON
    server.start()
    until(lambda: hears_again(bell, WORK), "the bells to be connected")
    ring(server, "w")
    assert rings(bell)
    bell.close()
    link.close()
    server.kill()


def test_a_silent_server(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked whether it is there, and given up when it does not say so."""
    monkeypatch.setattr("tarry.store.redis.bell_ear.ASK_AFTER", 0.05)
    link = linked(parsed(f"{server.url}?timeout=200ms"))
    bell = link.bell(CHANNEL)
    bell.arm(RESULT)
    server.halt()
    assert rings(bell), "it became deaf"
    server.resume()
    until(lambda: hears_again(bell, RESULT), "the bells to be connected again")
    bell.close()
    link.close()


def test_may_not_subscribe(server: RedisServer) -> None:
    """Then sleepers look by themselves, and everything else works, ringing too."""
    server.call("ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all", "resetchannels")
    link = linked(parsed(server.url.replace("//", "//ann:secret@")))
    bell = link.bell(CHANNEL)
    bell.arm(RESULT)
    start = time.monotonic()
    bell.wait(SOON)
    assert time.monotonic() - start < SOON
    assert link.run(Script("ring", RING), [], ["wr"]) is None
    bell.close()
    link.close()


def test_closing_ends_the_threads(server: RedisServer) -> None:
    link = linked(parsed(server.url))
    bell = link.bell(CHANNEL)
    bell.arm(WORK)
    assert ours() == {"tarry-bells", "tarry-turn"}
    bell.close()
    link.close()
    assert not ours()
    bell = link.bell(CHANNEL)
    bell.arm(WORK)
    assert not ours(), "a closed link has bells that nobody rings"
    bell.close()


def ours() -> set[str]:
    return {thread.name for thread in threading.enumerate()} & {"tarry-bells", "tarry-turn"}
