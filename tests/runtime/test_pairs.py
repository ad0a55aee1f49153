"""Every event in every phase of a master: what holds afterwards.

In each phase somebody waits at a gate: a worker that is not ready, or one that does not end. The event comes while the
gate is shut; what is to hold is looked at before and after it opens.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tarry.errors import MasterError
from tarry.runtime import control
from tarry.runtime.board.reader import Board, ChildStatus
from tarry.runtime.role import RecycleLimits
from tests.runtime.master_forkserver import ForkServer, ForkServerHarness
from tests.runtime.master_harness import KEEPER, MasterHarness, alive, until

Process = subprocess.Popen[str]
STAYS = ("worker", "default", 2, "stops_late")
LATE = ("worker", "default", 2, "ready_late")


@pytest.fixture(scope="module")
def forkserver() -> Iterator[ForkServer]:
    forkserver = ForkServer()
    yield forkserver
    forkserver.close()


@pytest.fixture
def harness(tmp_path: Path, forkserver: ForkServer) -> Iterator[MasterHarness]:
    harness = ForkServerHarness(tmp_path, forkserver)
    yield harness
    harness.close()


# The phases


def booting(harness: MasterHarness) -> Process:
    """Nobody is ready."""
    master = harness.start(LATE, KEEPER, grace=60)
    until(lambda: len(harness.facts("waiting")) == 2 and harness.facts("keeper"))
    harness.next(STAYS, KEEPER, grace=60)
    return master


def serving(harness: MasterHarness) -> Process:
    return harness.serve(STAYS, KEEPER, grace=60)


def draining(harness: MasterHarness) -> Process:
    """A stop waits for its workers."""
    master = serving(harness)
    master.send_signal(signal.SIGQUIT)
    until(lambda: len(harness.facts("asked")) == 2)
    return master


def trying(harness: MasterHarness) -> Process:
    """The canary of a reload is not ready."""
    master = serving(harness)
    harness.next(STAYS, KEEPER, grace=60, canary="canary_late")
    master.send_signal(signal.SIGHUP)
    until(lambda: harness.facts("waiting"))
    return master


def turning(harness: MasterHarness) -> Process:
    """The first worker of the new generation is not ready."""
    master = serving(harness)
    harness.next(LATE, KEEPER, grace=60)
    master.send_signal(signal.SIGHUP)
    until(lambda: harness.facts("waiting"))
    return master


def recycling(harness: MasterHarness) -> Process:
    """Who comes for a worker that is worn out is not ready."""
    master = harness.serve(("worker", "default", 2, "recycled"), KEEPER, grace=60, limits=RecycleLimits(jobs=7))
    until(lambda: harness.facts("waiting"))
    harness.next(STAYS, KEEPER, grace=60)
    return master


def leaving(harness: MasterHarness) -> Process:
    """Told to rest, the workers have not ended."""
    master = serving(harness)
    master.send_signal(signal.SIGWINCH)
    until(lambda: len(harness.facts("asked")) == 2)
    return master


def resting(harness: MasterHarness) -> Process:
    master = harness.serve(("worker", "default", 2, "plain"), KEEPER, grace=60)
    harness.next(STAYS, KEEPER, grace=60)
    master.send_signal(signal.SIGWINCH)
    until(lambda: not harness.children())
    return master


def failed(harness: MasterHarness) -> Process:
    """One of two workers cannot come up again."""
    master = harness.serve(("worker", "default", 2, "first_cannot_restart"), KEEPER, grace=60)
    harness.next(STAYS, KEEPER, grace=60)
    os.kill(find_child(harness, 1).pid, signal.SIGKILL)
    until(lambda: harness.board().notice.pools[0].failed)
    return master


# The events


def find_child(harness: MasterHarness, number: int = 0, role: str = "worker") -> ChildStatus:
    """A process of that role that lives, the oldest of them."""
    children = [child for child in harness.children(role) if child.pid and child.boot != "gone"]
    found = [child for child in children if number in (0, child.number)]
    return min(found, key=lambda child: child.started)


def sends(*numbers: int) -> Callable[[MasterHarness, Process], None]:
    def event(harness: MasterHarness, master: Process) -> None:
        for number in numbers:
            master.send_signal(number)
            wait_until_handled(harness, master)

    return event


def kills(role: str) -> Callable[[MasterHarness, Process], None]:
    def event(harness: MasterHarness, master: Process) -> None:
        pid = find_child(harness, role=role).pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid))
        until(lambda: f"ended, pid {pid}: " in harness.log())

    return event


def scale(harness: MasterHarness, master: Process) -> None:
    with contextlib.suppress(MasterError):
        control.scale(harness.pid_file, "default", 4)


EVENTS: Mapping[str, Callable[[MasterHarness, Process], None]] = {
    "USR1 CHLD PIPE": sends(signal.SIGUSR1, signal.SIGCHLD, signal.SIGPIPE),
    "HUP": sends(signal.SIGHUP),
    "INT": sends(signal.SIGINT),
    "INT INT": sends(signal.SIGINT, signal.SIGINT),
    "TERM": sends(signal.SIGTERM),
    "TERM TERM": sends(signal.SIGTERM, signal.SIGTERM),
    "QUIT": sends(signal.SIGQUIT),
    "QUIT QUIT": sends(signal.SIGQUIT, signal.SIGQUIT),
    "USR2": sends(signal.SIGUSR2),
    "WINCH": sends(signal.SIGWINCH),
    "TTIN": sends(signal.SIGTTIN),
    "TTOU": sends(signal.SIGTTOU),
    "HUP WINCH": sends(signal.SIGHUP, signal.SIGWINCH),
    "WINCH HUP": sends(signal.SIGWINCH, signal.SIGHUP),
    "scale": scale,
    "worker killed": kills("worker"),
    "keeper killed": kills("keeper"),
    "canary killed": kills("canary"),
}


def wait_until_handled(harness: MasterHarness, master: Process) -> None:
    """All that was sent has been handled, or the master is gone. It writes its status into the log: twice, since of
    signals that wait at the same time the last one may be the first to be delivered."""
    for _ in range(2):
        before = harness.log().count("master pid")
        master.send_signal(signal.SIGUSR1)
        until(lambda: master.poll() is not None or harness.log().count("master pid") > before)  # noqa: B023


# What holds afterwards


class Up(NamedTuple):
    """Once the gate is open."""

    state: str
    generation: int
    workers: int
    """That are ready; and there are no others, unless the pool has failed."""
    failed: bool = False
    trouble: str = ""


class Gone(NamedTuple):
    status: int = 0
    shut: str = ""
    """Its state while the gate is shut; empty: it is gone before it opens."""


WAITS, AT_ONCE = Gone(shut="stopping"), Gone()
FAILED = Gone(status=1)

GRACEFUL, FORCED = ("INT", "TERM", "QUIT", "USR2", "QUIT QUIT"), ("INT INT", "TERM TERM")


def stops(graceful: Gone) -> dict[str, Up | Gone]:
    return {**dict.fromkeys(GRACEFUL, graceful), **dict.fromkeys(FORCED, AT_ONCE)}


def stays(current_up: Up) -> dict[str, Up | Gone]:
    return dict.fromkeys(("USR1 CHLD PIPE", "keeper killed"), current_up)


def rests(generation: int) -> Up:
    return Up("resting", generation, 0)


def serves(generation: int, workers: int = 2) -> Up:
    return Up("serving", generation, workers)


def goes_on(generation: int) -> dict[str, Up | Gone]:
    """Where this one serves, or is to serve."""
    later = generation + 1
    return stays(serves(generation)) | {
        "HUP": serves(later),
        "WINCH": rests(generation),
        "HUP WINCH": rests(later),
        "WINCH HUP": serves(later),
        "TTIN": serves(generation, 3),
        "TTOU": serves(generation, 1),
        "scale": serves(generation, 4),
        "worker killed": serves(generation),
    }


TABLE: Mapping[Callable[[MasterHarness], Process], Mapping[str, Up | Gone]] = {
    booting: stops(AT_ONCE) | goes_on(1) | {"worker killed": FAILED},
    serving: stops(WAITS) | goes_on(1),
    draining: dict.fromkeys([event for event in EVENTS if event != "canary killed"], WAITS)
    | dict.fromkeys(FORCED, AT_ONCE),
    trying: stops(WAITS)
    | goes_on(2)
    | {
        "canary killed": Up(
            "serving", 1, 2, trouble="the canary ended before it was ready: killed (SIGKILL, perhaps out of memory)"
        )
    },
    turning: stops(WAITS) | goes_on(2),
    recycling: stops(WAITS) | goes_on(1),
    leaving: stops(WAITS)
    | stays(rests(1))
    | {
        "HUP": serves(2),
        "WINCH": rests(1),
        "HUP WINCH": rests(2),
        "WINCH HUP": serves(2),
        "TTIN": rests(1),
        "TTOU": rests(1),
        "scale": rests(1),
        "worker killed": rests(1),
    },
    resting: stops(AT_ONCE)
    | stays(rests(1))
    | {
        "HUP": serves(2),
        "WINCH": rests(1),
        "HUP WINCH": rests(2),
        "WINCH HUP": serves(2),
        "TTIN": rests(1),
        "TTOU": rests(1),
        "scale": rests(1),
    },
    failed: stops(WAITS)
    | stays(Up("serving", 1, 1, failed=True))
    | {
        "HUP": serves(2),
        "WINCH": rests(1),
        "HUP WINCH": rests(2),
        "WINCH HUP": serves(2),
        "TTIN": Up("serving", 1, 2, failed=True),
        "TTOU": serves(1, 1),
        "scale": Up("serving", 1, 3, failed=True),
        "worker killed": Up("serving", 1, 1, failed=True),
    },
}

PAIRS = [
    pytest.param(phase, event, TABLE[phase][event], id=f"{phase.__name__}, {event}")
    for phase in TABLE
    for event in TABLE[phase]
]


@pytest.mark.parametrize(("phase", "event", "then"), PAIRS)
def test_what_holds_afterwards(
    harness: MasterHarness, phase: Callable[[MasterHarness], Process], event: str, then: Up | Gone
) -> None:
    master = phase(harness)
    EVENTS[event](harness, master)
    if isinstance(then, Gone):
        if then.shut:
            assert (harness.board().state, master.poll()) == (then.shut, None)
            (harness.directory / "go").touch()
        check_ended(harness, master, then.status)
        return
    (harness.directory / "go").touch()
    try:
        until(lambda: current_up(harness) == then)
    except AssertionError as error:
        raise AssertionError(f"{current_up(harness)}\n{harness.board()}\n{harness.log()}") from error
    master.send_signal(signal.SIGINT)
    check_ended(harness, master, 0)


def current_up(harness: MasterHarness) -> Up | None:
    """None: something is still under way."""
    board = harness.board()
    notice, (pool,) = board.notice, board.notice.pools
    workers = [child for child in board.children if child.role == "worker"]
    ready = [child for child in workers if child.boot == "ready"]
    worn = any(child.processed for child in ready)
    settled = not worn and (pool.failed or len(workers) == len(ready))
    if notice.done < notice.asked or not settled or len(harness.children("keeper")) > 1 or not is_same(board, ready):
        return None
    return Up(board.state, notice.generation, len(ready), bool(pool.failed), notice.trouble.partition(";")[0])


def is_same(board: Board, ready: list[ChildStatus]) -> bool:
    return all(child.generation == board.notice.generation for child in ready)


def check_ended(harness: MasterHarness, master: Process, status: int) -> None:
    """With nothing left."""
    found, said = harness.wait_for_exit(master)
    assert (found, bool(said)) == (status, status > 0), said
    assert not any(alive(fact["pid"]) for fact in harness.facts())
    assert not list(harness.pid_file.parent.iterdir())
