import os
import select
import signal
import threading

import pytest

from tarry.runtime.signals import Signals, block_signals, signal_name
from tests.runtime.master_harness import until

WANTED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def signal_self(number: int) -> None:
    os.kill(os.getpid(), number)


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


def test_a_forked_child_that_forgets_them_does_not_take_its_parents() -> None:
    with Signals(WANTED) as signals:
        child = os.fork()
        if child == 0:
            signals.close_in_child()
            os._exit(0)
        os.waitpid(child, 0)
        signal_self(signal.SIGUSR1)
        assert signals.take() == [signal.SIGUSR1]


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "INT"), (signal.SIGUSR2, "USR2")])
def test_they_are_called_by_their_names(number: int, name: str) -> None:
    assert signal_name(number) == name
