"""`python -m tests.kill_points.struck start`: tarry, of which one process is struck at a point.

The file ORDER in the directory says which. The first such process removes the file, so no other one is struck; if it
comes to its end, it writes into the file CALLS how many calls the fault might have struck. The library of `calls.c` is
preloaded.
"""

import ctypes
import importlib
import inspect
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.cli import main as cli
from tarry.runtime.board import layout, scoreboard, slot
from tarry.runtime.role import ChildContext, Plan, Role
from tarry.runtime.upgrades import is_successor
from tarry.store.shared.wakeup import board

ORDER, CALLS = Path("order"), Path("calls")
"""In the directory where the master is started."""
STRUCK = b"struck\n"
"""What a process that is killed at its point writes into the log before, as the library does."""
_WRITES = re.compile(r"(?:memory|flags)\[[^\]]*\] = |_pack_\w+\(")
WRITING = {
    str(module.__file__): frozenset(
        number for number, line in enumerate(inspect.getsource(module).splitlines(), 1) if _WRITES.search(line)
    )
    for module in (layout, scoreboard, slot, board)
}
"""The lines that write into memory which processes share, by file."""


class Order(Struct, frozen=True):
    """Which process is struck (`master`, `successor` or the name of a role), and where. fault: as `calls.c` numbers
    them; None: a breakpoint. at 0: never."""

    who: str
    at: int
    fault: int | None

    def is_for(self, who: str) -> bool:
        """Whether this process is the one; it removes the file then."""
        if who != self.who:
            return False
        try:
            ORDER.unlink()
        except FileNotFoundError:
            return False
        return True

    def strike(self, run: Callable[[], int]) -> int:
        """Runs it, and counts."""
        count = self._count_calls() if self.fault is not None else _break_at(self.at)
        status = run()
        calls = count()
        CALLS.write_text(str(calls))
        return status

    def _count_calls(self) -> Callable[[], int]:
        calls = ctypes.CDLL(None)
        calls.kill_points_arm(ctypes.c_long(self.at), self.fault, ctypes.c_long(1), -1)

        def count() -> int:
            calls.kill_points_stop()
            return int(calls.kill_points_count())

        return count


def _break_at(at: int) -> Callable[[], int]:
    """Kills this process at the n-th of these moments: before and after each line that writes into shared memory."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == at:
            os.write(2, STRUCK)
            os.kill(os.getpid(), signal.SIGKILL)

    def on_call(frame: FrameType, event: str, arg: Any) -> Any:
        writing = WRITING.get(frame.f_code.co_filename)
        return None if writing is None else _step_around(writing, step)

    # Also in the threads that it starts, yet not in what it forks.
    threading.settrace(on_call)
    sys.settrace(on_call)
    os.register_at_fork(after_in_child=_stop_tracing)

    def stop() -> int:
        _stop_tracing()
        return count

    return stop


def _step_around(writing: Collection[int], step: Callable[[], None]) -> Callable[[FrameType, str, Any], Any]:
    """Traces one call of a function. writing: the numbers of lines."""
    wrote = False

    def on_line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal wrote
        writes = event == "line" and frame.f_lineno in writing
        if wrote or writes:
            step()
        wrote = writes
        return on_line

    return on_line


def _stop_tracing() -> None:
    threading.settrace(None)
    sys.settrace(None)


def _struck(order: Order, plan: Plan) -> Plan:
    return replace(plan, roles=[replace(role, run=partial(_run_role, order, role)) for role in plan.roles])


def _run_role(order: Order, role: Role, child: ChildContext) -> int:
    return order.strike(lambda: role.run(child)) if order.is_for(role.name) else role.run(child)


def main() -> int:
    """As the command of tarry."""
    if not ORDER.exists():
        return cli.main()
    order = msgspec.json.decode(ORDER.read_bytes(), type=Order)
    start: Any = importlib.import_module("tarry.cli.start")
    create_plan = start.create_plan
    start.create_plan = lambda *all: _struck(order, create_plan(*all))
    if order.is_for("successor" if is_successor() else "master"):
        return order.strike(cli.main)
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
