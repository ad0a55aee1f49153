"""What a process writes of itself in its last moment."""

import os
import signal
import threading

import pytest

from tarry.runtime import stack_dump
from tarry.runtime.stack_dump import StackDump, find_stack

TWO = """\
Thread 0x00007f0000000001 (most recent call first):
  File "shop/jobs.py", line 12 in inner
  File "shop/jobs.py", line 7 in outer

Current thread 0x00007f0000000002 (most recent call first):
  File "main.py", line 3 in main
"""


def test_only_the_threads_own_calls_are_shown_as_in_a_traceback() -> None:
    assert find_stack(TWO, 0x7F0000000001).splitlines() == [
        "Stack when it was killed (most recent call last):",
        '  File "shop/jobs.py", line 7 in outer',
        '  File "shop/jobs.py", line 12 in inner',
    ]
    assert "line 3 in main" in find_stack(TWO, 0x7F0000000002)
    assert find_stack(TWO, 0x7F0000000003) == ""
    assert find_stack("", 1) == ""


def test_of_a_long_stack_the_innermost_calls_are_kept() -> None:
    calls = "".join(f'  File "deep.py", line {n} in f\n' for n in range(2000))
    shown = find_stack(f"Thread 0x{1:016x} (most recent call first):\n{calls}", 1)
    assert len(shown) <= stack_dump.MAX_STACK + 10
    first, *_, last = shown.splitlines()
    assert (first, last) == ("  ...", '  File "deep.py", line 0 in f')


def held_up(tell: int) -> None:
    os.write(tell, f"{threading.get_ident()}\n".encode())
    while True:
        pass


@pytest.fixture
def child() -> "tuple[int, int, StackDump]":
    """A process at `held_up` in a second thread: its pid, that thread's ident, and where it will write."""
    other, written = StackDump(), StackDump()
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            written.register()
            threading.Thread(target=held_up, args=(tell,), daemon=True).start()
            threading.Event().wait()
        finally:
            os._exit(1)
    os.close(tell)
    with open(hear) as pipe:
        ident = int(pipe.readline())
    other.close()
    return pid, ident, written


def test_it_writes_the_stacks_of_all_threads_and_dies(child: tuple[int, int, StackDump]) -> None:
    pid, ident, written = child
    assert find_stack(written.text(), ident) == "", "nothing happened yet"
    os.kill(pid, stack_dump.SIGNAL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -stack_dump.SIGNAL
    assert "in held_up" in find_stack(written.text(), ident)
    written.close()
    assert find_stack(written.text(), ident) == ""


def test_a_stopped_process_writes_nothing_and_can_be_killed(child: tuple[int, int, StackDump]) -> None:
    pid, ident, written = child
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
    os.kill(pid, stack_dump.SIGNAL)
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert find_stack(written.text(), ident) == ""
