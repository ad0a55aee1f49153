"""How a child process ended: in words, and as what its end counts."""

import os
import signal

from msgspec import Struct

from tarry.runtime import stack_dump
from tarry.runtime.role import ASKED_FROM, CUT_OFF, UNASKED

QUIT, OVERDUE, OVER_MEMORY, LATE = "quit", "overdue", "memory", "late"
"""Why the master killed a process."""

JOBS, AGE, MEMORY, HANG, CRASH, KILLED, SIGNAL = "jobs", "age", "memory", "hang", "crash", "killed", "signal"
"""Why a process ended although it was still wanted: a limit of its pool, a job that did not end, an error of its own,
SIGKILL, or another signal from outside."""

_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGSYS, signal.SIGTRAP}
"""What the kernel or the C library sends to a process for its own error."""
_GRACEFUL = {signal.SIGINT, signal.SIGTERM}
_MASTER_KILLED = {
    QUIT: "it ends at once",
    OVERDUE: "a job did not end",
    OVER_MEMORY: "it took more memory than kill_memory",
    LATE: "it was not ready, or did not end, in time",
}


class ProcessEnd(Struct, frozen=True):
    """text: as in the log. counts_as: CRASH, KILLED or SIGNAL, if nobody here wanted its end. is_graceful: it ended by
    itself and finished or gave back its jobs."""

    text: str
    counts_as: str
    is_graceful: bool = False


def read_end(status: int, killed_for: str = "", was_asked: bool = False, has_jobs: bool = False) -> ProcessEnd:
    """From a wait status. killed_for: why the master killed it, if it did. was_asked: the master had asked it to end.
    has_jobs: it ended in the middle of jobs."""
    code = os.waitstatus_to_exitcode(status)
    # An overdue process gets the signal of the stacks first, which ends it.
    if killed_for and -code in (signal.SIGKILL, stack_dump.SIGNAL):
        return ProcessEnd(f"killed by the master: {_MASTER_KILLED[killed_for]}", KILLED)
    # In the middle of a job it is the job that has chosen this status.
    if code - ASKED_FROM in _GRACEFUL and not has_jobs:
        text = "status 0" if was_asked else f"ended by {signal.Signals(code - ASKED_FROM).name} from outside"
        return ProcessEnd(text, SIGNAL, is_graceful=True)
    if code == CUT_OFF:
        return ProcessEnd(f"status {code}: a job closed its descriptors", CRASH)
    if code == UNASKED:
        return ProcessEnd("ended by SIGTERM that its master did not ask for, from outside or by a job", SIGNAL)
    return ProcessEnd(f"status {code}", CRASH, is_graceful=not code) if code >= 0 else _of_signal(-code)


def _of_signal(number: int) -> ProcessEnd:
    name = next((each.name for each in signal.Signals if each == number), f"signal {number}")
    if number == signal.SIGKILL:
        return ProcessEnd(f"killed ({name}, perhaps out of memory)", KILLED)
    if number in _FAULTS:
        return ProcessEnd(f"crashed ({name})", CRASH)
    return ProcessEnd(f"ended by {name} from outside", SIGNAL)
