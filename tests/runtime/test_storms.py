"""A thousand signals, and children killed in between: what the last one asks for is what holds."""

import contextlib
import os
import random
import signal
import subprocess

import pytest

from tests.runtime.master_harness import KEEPER, MasterHarness, alive, until
from tests.seeds import seeded_random

TWO = ("worker", "default", 2, "plain")
SIGNALS = 1000
HARMLESS = (signal.SIGUSR1, signal.SIGCHLD, signal.SIGPIPE)
LASTING = (signal.SIGHUP, signal.SIGWINCH, signal.SIGTTIN, signal.SIGTTOU, *HARMLESS)
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR2)

Process = subprocess.Popen[str]


@pytest.fixture
def chance() -> random.Random:
    return seeded_random()


def storm(harness: MasterHarness, master: Process, chance: random.Random) -> None:
    """The kernel keeps one of a kind, and no order between kinds, until the master looks: so it may, now and then."""
    for number in range(SIGNALS):
        master.send_signal(chance.choice(LASTING))
        if number % 20 == 0:
            wait_until_handled(harness, master)
        if number % 25 == 0 and (
            pids := [child.pid for child in harness.board().children if child.pid and child.boot != "gone"]
        ):
            hit_process(harness, master, chance.choice(pids))
    wait_until_handled(harness, master)


def after_storm(harness: MasterHarness, chance: random.Random, last: signal.Signals) -> Process:
    """All that was asked for, with that at its end, has been answered."""
    master = harness.serve(TWO, KEEPER)
    storm(harness, master, chance)
    master.send_signal(last)
    wait_until_handled(harness, master)
    until(lambda: harness.board().notice.done == harness.board().notice.asked)
    return master


def hit_process(harness: MasterHarness, master: Process, pid: int) -> None:
    """The pid may have been given to another process by now, since the master reaps: it must still be its child."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        process = os.pidfd_open(pid)
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if int(stat.read().rpartition(")")[2].split()[1]) == master.pid:
                    signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)


def wait_until_handled(harness: MasterHarness, master: Process) -> None:
    before = harness.log().count("master pid")
    master.send_signal(signal.SIGUSR1)
    until(lambda: harness.log().count("master pid") > before)


def check_ended(harness: MasterHarness, master: Process) -> None:
    assert harness.wait_for_exit(master) == (0, "")
    assert not any(alive(fact["pid"]) for fact in harness.facts())
    assert not list(harness.pid_file.parent.iterdir())


def test_a_reload_at_its_end_and_all_serve_as_it_says(harness: MasterHarness, chance: random.Random) -> None:
    master = after_storm(harness, chance, signal.SIGHUP)
    wanted = harness.board().notice.pools[0].workers
    until(lambda: len(harness.ready()) == len(harness.children()) == wanted)
    until(lambda: {child.generation for child in harness.board().children} == {harness.board().notice.generation})
    board = harness.board()
    assert (board.state, board.notice.trouble, len(harness.ready("keeper"))) == ("serving", "", 1)
    print(f"generation {board.notice.generation}, {wanted} workers, {harness.log().count('killed (SIGKILL')} killed")
    master.send_signal(signal.SIGINT)
    check_ended(harness, master)


def test_a_winch_at_its_end_and_no_worker_is_left(harness: MasterHarness, chance: random.Random) -> None:
    master = after_storm(harness, chance, signal.SIGWINCH)
    until(lambda: not harness.children())
    assert harness.board().state == "resting"
    master.send_signal(signal.SIGINT)
    check_ended(harness, master)


@pytest.mark.parametrize("last", ENDING)
def test_a_stop_at_its_end_and_nothing_is_left(
    harness: MasterHarness, chance: random.Random, last: signal.Signals
) -> None:
    master = harness.serve(TWO, KEEPER)
    storm(harness, master, chance)
    master.send_signal(last)
    check_ended(harness, master)


def test_stops_among_them_and_nothing_is_left(harness: MasterHarness, chance: random.Random) -> None:
    """Whatever else comes, before and after and while it ends."""
    master = harness.serve(TWO, KEEPER)
    for _ in range(SIGNALS):
        if master.poll() is None:
            master.send_signal(chance.choice((*LASTING, *ENDING)))
    check_ended(harness, master)
