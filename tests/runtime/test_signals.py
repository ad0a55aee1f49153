import contextlib
import os
import select
import signal
import threading

import pytest

from tarry.runtime.signal_queue import Signals, block_signals, signal_name
from tests.runtime.master_harness import until

WANTED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def signal_self(number: int) -> None:
    os.kill(os.getpid(), number)


def end_child(pid: int, number: int) -> bool:
    os.kill(pid, number)
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def test_they_are_taken_in_their_order() -> None:
    came = [signal.SIGUSR1, signal.SIGINT, signal.SIGUSR1, signal.SIGTERM, signal.SIGUSR2]
    with Signals(WANTED) as signals:
        for number in came:
            signal_self(number)
        assert select.select([signals], [], [], 5)[0] == [signals]
        assert signals.take() == came
        assert signals.take() == []
        assert select.select([signals], [], [], 0)[0] == []


def test_thousands_are_kept() -> None:
    with Signals(WANTED) as signals:
        for _ in range(5000):
            signal_self(signal.SIGUSR1)
        assert signals.take() == [signal.SIGUSR1] * 5000


def test_everything_is_as_before_afterwards() -> None:
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    descriptors = len(os.listdir("/dev/fd"))
    with Signals(WANTED, [signal.SIGTTIN]):
        assert signal.getsignal(signal.SIGTTIN) == signal.SIG_IGN
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
    assert signal.set_wakeup_fd(-1) == -1
    assert len(os.listdir("/dev/fd")) == descriptors


def test_those_of_a_process_that_is_about_to_end_are_ignored_also_afterwards() -> None:
    before = {number: signal.getsignal(number) for number in WANTED}
    try:
        with Signals((*WANTED, signal.SIGCHLD)) as signals:
            signals.ignore()
        assert {signal.getsignal(number) for number in WANTED} == {signal.SIG_IGN}
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_what_is_held_back_comes_after() -> None:
    with Signals(WANTED) as signals:
        with block_signals():
            # To this thread: another one of the test run may be open to what is sent to the process.
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            assert signals.take() == []
        assert until(signals.take) == [signal.SIGTERM]


def test_they_do_not_cut_a_sleep_short() -> None:
    with Signals([signal.SIGALRM]) as signals:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert select.select([], [], [], 0.2) == ([], [], [])
        assert signals.take() == [signal.SIGALRM]


@pytest.mark.parametrize("number", WANTED)
def test_a_forked_child_ends_by_its_signals_and_they_are_not_its_parents(number: int) -> None:
    with Signals(WANTED) as signals:
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                threading.Event().wait()
            os._exit(7)
        # At once: the child may not have run yet.
        until(lambda: end_child(child, number))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in ((7, -number) if number == signal.SIGINT else (-number,))
        assert signals.take() == []
        signal_self(signal.SIGUSR1)
        assert signals.take() == [signal.SIGUSR1]


def test_a_forked_child_has_no_descriptor_of_them_and_keeps_a_handler_of_a_task() -> None:
    with Signals(WANTED):
        signal.signal(signal.SIGUSR2, lambda number, frame: os._exit(9))
        before = len(os.listdir("/dev/fd"))
        child = os.fork()
        if child == 0:
            signal_self(signal.SIGUSR2 if len(os.listdir("/dev/fd")) == before - 2 else signal.SIGKILL)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "INT"), (signal.SIGUSR2, "USR2")])
def test_they_are_called_by_their_names(number: int, name: str) -> None:
    assert signal_name(number) == name
