"""The wake-up hub and its listener, with connections that the test makes and breaks."""

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tarry.errors import StoreUnavailable
from tarry.model.wake import WakeReason
from tarry.store.rules.sleeper import FOLLOW, FULL, RESULT, WORK, Wakeup, choose_sleepers
from tarry.store.shared.wakeup.hub import HubWakeup, WakeupHub
from tarry.store.shared.wakeup.listener import WakeupListener
from tests.every_store.struck import StruckThread, needs_safe_with
from tests.worker.bench import until

LIMIT = 15.0
SLEEPERS = [
    ("busy", FULL),
    ("a", WORK + "a"),
    ("also a", WORK + "a"),
    ("b", WORK + "b"),
    ("one", RESULT),
    ("two", FOLLOW),
]


@pytest.mark.parametrize(
    ("reasons", "woken"),
    [
        ([WakeReason.WORK], ["a", "b"]),
        ([WakeReason.RECALL], ["busy", "a", "also a", "b"]),
        ([WakeReason.RESULT], ["one", "two"]),
        ([WakeReason.STEP], ["two"]),
        ([WakeReason.WORK, WakeReason.RECALL], ["busy", "a", "also a", "b"]),
        ([WakeReason.WORK, WakeReason.STEP], ["a", "b", "two"]),
        ([], []),
    ],
)
def test_who_is_woken(reasons: list[WakeReason], woken: list[str]) -> None:
    assert choose_sleepers(SLEEPERS, reasons) == woken


class Server:
    """Lets connections in, or not."""

    def __init__(self) -> None:
        self.is_up = True
        self.listeners: list[FakeListener] = []
        self.connections: list[socket.socket] = []

    def create_listener(self, hub: WakeupHub) -> "FakeListener":
        self.listeners.append(FakeListener(hub, self))
        return self.listeners[-1]

    def connect(self) -> socket.socket:
        if not self.is_up:
            raise StoreUnavailable("away")
        ours, theirs = socket.socketpair()
        self.connections.append(theirs)
        return ours

    def kill(self) -> None:
        self.is_up = False
        for connection in self.connections:
            connection.close()


class FakeListener(WakeupListener):
    """Hears letters."""

    def __init__(self, hub: WakeupHub, server: Server) -> None:
        super().__init__("test-listener", hub, LIMIT)
        self._server = server

    def subscribe(self, topic: str) -> None:
        self.subscribe_to((topic,))

    def is_receiving(self, topic: str) -> bool:
        return topic in self.heard

    def listen(self) -> None:
        with self._server.connect() as connection:
            while not self.is_closed:
                if new := self.wanted - self.heard:
                    self.confirm(new)
                readable, _ = self.poll(connection.fileno())
                if readable:
                    if not (letters := connection.recv(100)):
                        raise StoreUnavailable("broken")
                    self.hub.wake(*map(WakeReason, letters.decode()))


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.kill()


@pytest.fixture
def hub(server: Server) -> Iterator[WakeupHub]:
    hub = WakeupHub(server.create_listener)
    yield hub
    hub.close()
    assert "test-listener" not in {thread.name for thread in threading.enumerate()}


@pytest.fixture
def sleepers(hub: WakeupHub) -> Iterator[list[Wakeup]]:
    sleepers = [hub.wakeup(), hub.wakeup()]
    yield sleepers
    for sleeper in sleepers:
        sleeper.close()


def test_who_is_awake_is_not_woken_again(hub: WakeupHub, sleepers: list[Wakeup]) -> None:
    """The next news is for another of its kind."""
    for sleeper in sleepers:
        sleeper.listen(WORK)
    for _ in range(3):
        hub.wake(WakeReason.WORK)
    assert [sleeper.clear() for sleeper in sleepers] == [b"\0", b"\0"]
    assert not hub.wake(WakeReason.WORK)


def test_news_end_the_listening_and_its_own_process_does_not(sleepers: list[Wakeup], hub: WakeupHub) -> None:
    sleeper, other = sleepers
    assert not sleeper.is_listening()
    for each in sleepers:
        each.listen(RESULT)
    sleeper.wake()
    assert sleeper.sleep(LIMIT) == b"\0"
    assert sleeper.is_listening()
    assert hub.wake(WakeReason.RESULT)
    assert [each.is_listening() for each in sleepers] == [False, False]
    assert other.wait(LIMIT) == b"\0"


def test_news_from_another_process(server: Server, sleepers: list[Wakeup]) -> None:
    """There is no connection before somebody listens, and one for all who do."""
    assert not server.connections
    for sleeper, topic in zip(sleepers, (RESULT, FOLLOW), strict=True):
        sleeper.listen(topic)
    server.connections[0].send(b"r")
    assert [sleeper.wait(LIMIT) for sleeper in sleepers] == [b"\0", b"\0"]
    assert len(server.connections) == 1


def test_a_lost_connection(server: Server, sleepers: list[Wakeup]) -> None:
    """All look when it is lost, then by themselves now and then, and all once more when it is there again."""
    sleeper, _ = sleepers
    assert isinstance(sleeper, HubWakeup)
    sleeper.listen(RESULT)
    assert sleeper.is_receiving()
    server.kill()
    assert sleeper.wait(LIMIT) == b"\0"
    sleeper.listen(RESULT)
    assert not sleeper.is_receiving()
    began = time.monotonic()
    assert sleeper.wait(LIMIT) == b""
    assert time.monotonic() - began < LIMIT / 2, "it sleeps on although nothing would wake it"
    sleeper.listen(RESULT)
    server.is_up = True
    until(sleeper.is_receiving)
    assert sleeper.wait(LIMIT) == b"\0", "nobody looks what came meanwhile"


def test_a_server_that_is_away_holds_nobody_up(server: Server, sleepers: list[Wakeup]) -> None:
    server.kill()
    began = time.monotonic()
    sleepers[0].listen(RESULT)
    assert time.monotonic() - began < LIMIT / 2


def test_a_closed_hub_connects_to_nothing(server: Server, hub: WakeupHub, sleepers: list[Wakeup]) -> None:
    hub.close()
    sleeper, _ = sleepers
    sleeper.listen(RESULT)
    assert not server.listeners
    hub.wake(WakeReason.RESULT)
    assert sleeper.wait(LIMIT) == b"\0"


def test_a_forked_child_has_a_listener_of_its_own(server: Server, hub: WakeupHub, sleepers: list[Wakeup]) -> None:
    """Also if a lock was held at the time of the fork; the parent's sleepers are not woken by it."""
    sleeper, _ = sleepers
    sleeper.listen(RESULT)
    with hub.changed:
        child = os.fork()
        if not child:
            hub.wake(WakeReason.RESULT)
            hub.ignore(sleeper)
            own = hub.wakeup()
            own.listen(RESULT)
            server.connections[-1].send(b"r")
            woken = own.wait(LIMIT) == b"\0" and len(server.listeners) == 2
            hub.close()
            os._exit(0 if woken else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sleeper.clear() == b""
    server.connections[0].send(b"r")
    assert sleeper.wait(LIMIT) == b"\0"


@needs_safe_with
def test_what_is_thrown_at_any_moment_leaves_the_hub_free() -> None:
    hub = WakeupHub()
    sleeper = hub.wakeup()
    sleeper.listen(WORK + "a")
    # Wakes nobody: a call of the system would be where most exceptions come.
    with StruckThread(lambda: hub.wake(WakeReason.RESULT)) as thread:
        thread.throw(times=300)
    assert thread.errors == []
    # Hangs where the lock is held.
    hub.wake_all()
    sleeper.close()
