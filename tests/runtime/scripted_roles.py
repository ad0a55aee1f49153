"""Small roles for a real master: `python -m tests.runtime.scripted_roles DIRECTORY SCRIPT`. They note what they do."""

import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tarry.errors import ConfigError, MasterError
from tarry.model.values.listen_address import listen_address
from tarry.runtime.board.reader import SERVER
from tarry.runtime.board.scoreboard import board_path
from tarry.runtime.daemon import daemonize
from tarry.runtime.logs import handlers
from tarry.runtime.master import Master
from tarry.runtime.role import CANARY, KEEPER, ChildContext, Plan, RecycleLimits, Role

FIRST, SECOND = bytes(range(16)), bytes(range(16, 32))


class MasterScript(Struct):
    roles: list[tuple[str, str, int, str]]
    """(name, pool, count, function of this module)."""
    grace: float = 8.0
    boot_limit: float = 60.0
    interrupt_at_birth: bool = False
    """Every child gets an INT right after its fork."""
    ignores_int: bool = False
    """INT and QUIT are ignored at the start, as after `nohup ... &`."""
    forks_fail: list[int] = []
    """Which forks fail, counted from 1."""
    cells: int = 2
    canary: str = "canary_lives"
    limits: RecycleLimits = RecycleLimits()
    reload_timeout: float = 0.0
    daemon: bool = False
    listens: dict[str, list[str]] = {}
    """Where roles of the name `server` accept connections, by door."""
    crash: str = ""
    """A daemon that ends before it serves: "raise" or "die"."""


class Notes:
    """Writes facts to a file, one JSON object a line, each with one write."""

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / "facts", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.directory = directory

    def note(self, what: str, **more: Any) -> None:
        os.write(self._fd, msgspec.json.encode({"what": what, "pid": os.getpid(), **more}) + b"\n")

    def first_time(self, name: str) -> bool:
        try:
            os.close(os.open(self.directory / name, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


TELLING = 0x7F01
"""The thread of which `overdue_and_tells` tells."""


def wait_for_signals(child: ChildContext, limit: int | None = None) -> list[int]:
    """Waits for a signal, a message or the master's end. limit: milliseconds; None: none."""
    sleeper = select.poll()
    sleeper.register(child.signals, select.POLLIN)
    sleeper.register(child.parent_fd, select.POLLIN)
    sleeper.poll(limit)
    return child.take_signals()


def wait_for_end(child: ChildContext, limit: int | None = None) -> bool:
    """Waits as `wait_for_signals`, and reads the messages: whether it was asked to end, which it confirms."""
    taken = wait_for_signals(child, limit)
    child.receive()
    child.confirm_stop()
    return child.is_asked or not {signal.SIGINT, signal.SIGTERM}.isdisjoint(taken)


def run_until_stopped(notes: Notes, child: ChildContext) -> int:
    while not child.is_orphaned:
        if wait_for_end(child):
            notes.note("asked")
            return 0
    notes.note("orphaned")
    return 0


def report_begin(notes: Notes, child: ChildContext) -> None:
    child.slot.set_owner(f"owner-{os.getpid()}")
    child.slot.beat(12345678)
    # Noted first: the master may ask the old process to end as soon as this one is ready.
    notes.note("ready", number=child.number, pool=child.pool)
    child.report_ready()


def plain(notes: Notes, child: ChildContext) -> int:
    report_begin(notes, child)
    return run_until_stopped(notes, child)


def canary_lives(notes: Notes, child: ChildContext) -> int:
    """A canary that becomes ready."""
    notes.note("canary ready")
    child.report_ready()
    return 0


def canary_never_ready(notes: Notes, child: ChildContext) -> int:
    return run_until_stopped(notes, child)


def canary_exits(notes: Notes, child: ChildContext) -> int:
    return 7


def canary_fails(notes: Notes, child: ChildContext) -> int:
    return child.report_failure("no module named shop")


def busy(notes: Notes, child: ChildContext) -> int:
    """Runs two jobs."""
    child.slot.on(0, FIRST, 3, b"shop.first", 0.0)
    child.slot.on(1, SECOND, 4, "shop.zweites·".encode(), 0.0)
    child.slot.count(7, 2)
    return plain(notes, child)


def finishes_late(notes: Notes, child: ChildContext) -> int:
    """Outlives its master, until the file `go` exists."""
    status = busy(notes, child)
    while not (notes.directory / "go").exists():
        time.sleep(0.01)
    return status


def wait_for_go(notes: Notes, child: ChildContext) -> bool:
    """Waits for the file `go`; False: it was asked to end, or the master is gone."""
    notes.note("waiting")
    while not (notes.directory / "go").exists():
        if wait_for_end(child, 10):
            return False
        if child.is_orphaned:
            return False
    return True


def stops_late(notes: Notes, child: ChildContext) -> int:
    """Ends once it was asked and the file `go` exists; or at once when the master is gone."""
    status = plain(notes, child)
    while not child.is_orphaned and not (notes.directory / "go").exists():
        wait_for_signals(child, 10)
        child.receive()
    return status


def ready_late(notes: Notes, child: ChildContext) -> int:
    """Becomes ready once the file `go` exists."""
    return stops_late(notes, child) if wait_for_go(notes, child) else 0


def canary_late(notes: Notes, child: ChildContext) -> int:
    return canary_lives(notes, child) if wait_for_go(notes, child) else 0


def recycled(notes: Notes, child: ChildContext) -> int:
    """One of the first two reaches its limit of jobs; later ones become ready late."""
    if notes.first_time("first"):
        child.slot.count(7, 0)
        return stops_late(notes, child)
    return stops_late(notes, child) if notes.first_time("second") else ready_late(notes, child)


def first_cannot_restart(notes: Notes, child: ChildContext) -> int:
    """Number 1 cannot start a second time."""
    again = child.number == 1 and not notes.first_time("one")
    return child.report_failure("gone bad") if again else stops_late(notes, child)


def tells_pid(notes: Notes, child: ChildContext) -> int:
    """Accepts connections until it is asked to end, and tells each its door and the pid."""
    report_begin(notes, child)
    sleeper = select.poll()
    sleeper.register(child.signals, select.POLLIN)
    sleeper.register(child.parent_fd, select.POLLIN)
    doors = {listener.fileno(): (door, listener) for door, each in child.sockets.items() for listener in each}
    for listening in doors:
        sleeper.register(listening, select.POLLIN)
    while not child.should_exit():
        for fd, _ in sleeper.poll():
            if fd in doors:
                _tell_pid(*doors[fd])
        child.receive()
    return 0


def _tell_pid(door: str, listener: socket.socket) -> None:
    # Another process may have been faster.
    with contextlib.suppress(BlockingIOError):
        connection, _ = listener.accept()
        with connection:
            connection.sendall(f"{door} {os.getpid()}".encode())


def stubborn(notes: Notes, child: ChildContext) -> int:
    child.slot.on(0, FIRST, 3, b"shop.first", 0.0)
    report_begin(notes, child)
    while not child.is_orphaned:
        wait_for_signals(child)
        child.receive()
        if child.is_asked:
            notes.note("ignored")
    return 0


def confirms_late(notes: Notes, child: ChildContext) -> int:
    """Confirms that it is asked to end once the file `go` exists."""
    report_begin(notes, child)
    while not child.is_asked:
        wait_for_signals(child)
        child.receive()
    notes.note("asked")
    while not (notes.directory / "go").exists():
        wait_for_signals(child, 10)
    child.confirm_stop()
    return 0


def reads_no_messages(notes: Notes, child: ChildContext) -> int:
    report_begin(notes, child)
    while not child.take_signals():
        time.sleep(0.01)
    return 0


def overdue(notes: Notes, child: ChildContext) -> int:
    """The first one runs a job that takes too long, and another that does not."""
    if notes.first_time("overdue"):
        child.slot.on(0, FIRST, 3, b"shop.first", time.monotonic() + 0.2)
        child.slot.on(1, SECOND, 4, b"shop.second", time.monotonic() + 1000)
    return plain(notes, child)


def overdue_and_tells(notes: Notes, child: ChildContext) -> int:
    """The first one is asked, before its kill, where its threads are, and answers."""
    if not notes.first_time("overdue"):
        return plain(notes, child)
    child.slot.thread(0, TELLING)
    child.slot.on(0, FIRST, 3, b"shop.first", time.monotonic() + 0.2)
    report_begin(notes, child)
    while not child.is_orphaned:
        wait_for_signals(child)
        for message in child.receive():
            threads = f'Thread 0x{TELLING:016x} (most recent call first):\n  File "shop.py", line 7 in first\n'
            child.send({"stack": message["stack"], "jobs": {}, "threads": threads})
    return 0


def with_grandchild(notes: Notes, child: ChildContext) -> int:
    grandchild = subprocess.Popen(["sleep", "1000"])
    notes.note("grandchild", born=grandchild.pid)
    return plain(notes, child)


def cannot_boot(notes: Notes, child: ChildContext) -> int:
    return child.report_failure("no module named shop\nTraceback follows")


def cannot_boot_again(notes: Notes, child: ChildContext) -> int:
    return plain(notes, child) if notes.first_time(f"boot{child.number}") else child.report_failure("gone bad")


def exits_at_boot(notes: Notes, child: ChildContext) -> int:
    return 7


def never_ready(notes: Notes, child: ChildContext) -> int:
    return run_until_stopped(notes, child)


def crashes(notes: Notes, child: ChildContext) -> int:
    report_begin(notes, child)
    raise ValueError("a bug in the role")


def crash_loop(notes: Notes, child: ChildContext) -> int:
    """Serves the first time, and ends at once each later time."""
    first = notes.first_time("loop")
    report_begin(notes, child)
    return run_until_stopped(notes, child) if first else 1


def leaves_thread(notes: Notes, child: ChildContext) -> int:
    """Leaves a thread that never ends, and text in a buffer."""
    threading.Thread(target=threading.Event().wait).start()
    status = plain(notes, child)
    print("last words", end="")
    return status


def notes_descriptors(notes: Notes, child: ChildContext) -> int:
    """Notes what it has inherited."""
    own = {0, 1, 2}
    links = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in map(int, os.listdir("/proc/self/fd")) if _open(fd)}
    mask = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    handlers = {signal.Signals(n).name: callable(signal.getsignal(n)) for n in signal.valid_signals() if n < 32}
    recorded = sorted(name for name, caught in handlers.items() if caught)
    others = [link for fd, link in links.items() if fd not in own]
    notes.note("notes_descriptors", fds=others, mask=mask, recorded=recorded, stdin=links[0], group=os.getpgid(0))
    return plain(notes, child)


def _open(fd: int) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def keeper(notes: Notes, child: ChildContext) -> int:
    """Confirms every death."""
    return _keep(notes, child, lambda: True)


def keeper_mute_once(notes: Notes, child: ChildContext) -> int:
    """The first one receives messages and confirms none."""
    first = notes.first_time("keeper_mute")
    return _keep(notes, child, lambda: not first)


def keeper_mute(notes: Notes, child: ChildContext) -> int:
    return _keep(notes, child, lambda: False)


def _keep(notes: Notes, child: ChildContext, answers: Callable[[], bool]) -> int:
    child.report_ready()
    notes.note("keeper")
    while not child.is_orphaned:
        taken = wait_for_signals(child)
        for line in child.receive():
            notes.note("told", line=line)
            if answers():
                child.send({"returned": line["gone"]})
        child.confirm_stop()
        if child.is_asked or signal.SIGINT in taken:
            notes.note("keeper asked")
            return 0
    notes.note("orphaned")
    return 0


def patch_fork(script: MasterScript) -> None:
    """Makes forks fail, or signals children right after the fork, which no test could do fast enough."""
    fork, count = os.fork, 0

    def hasty() -> int:
        nonlocal count
        count += 1
        if count in script.forks_fail:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        pid = fork()
        if pid and script.interrupt_at_birth:
            os.kill(pid, signal.SIGINT)
        return pid

    os.fork = hasty


def make_plan(notes: Notes, script: MasterScript) -> Plan:
    def role(name: str, pool: str, count: int, actor: str) -> Role:
        limits = RecycleLimits() if name == KEEPER else script.limits
        listens = script.listens if name == SERVER else {}
        addresses = {door: [listen_address(one) for one in each] for door, each in listens.items()}
        run = lambda child: globals()[actor](notes, child)  # noqa: E731 - as short as the others
        return Role(name, pool, count, script.cells, run, limits, listens=addresses)

    canary = role(CANARY, "", 1, script.canary) if script.canary else None
    roles = [role(*each) for each in script.roles]
    return Plan(roles, canary, script.grace, script.reload_timeout, script.boot_limit)


def read_next_plan(notes: Notes) -> Plan:
    """The plan in the file `next`."""
    try:
        script = msgspec.json.decode((notes.directory / "next").read_bytes(), type=MasterScript)
    except msgspec.DecodeError as error:
        raise ConfigError(f"next: {error}") from None
    return make_plan(notes, script)


def main(directory: Path, script: MasterScript) -> int:
    readiness = daemonize(directory / "output") if script.daemon else None
    notes = Notes(directory)
    pid_file = directory / "run" / "tarry.pid"
    handlers.configure(directory / "log")
    if script.crash == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    patch_fork(script)
    if script.ignores_int:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)

    def serving() -> None:
        notes.note("serving")
        if readiness is not None:
            time.sleep(0.2)  # a caller that does not wait for us fails here
            notes.note("told so")
            readiness.report_serving()

    print("first words, ", end="")  # in the buffer at every fork
    plan = make_plan(notes, script)
    master = Master(plan, pid_file, board_path(pid_file), serving, lambda: read_next_plan(notes))
    try:
        status = master.run()
    except MasterError as error:
        status, master.failure = 1, str(error)
    if master.failure:
        print(master.failure, file=sys.stderr)
        if readiness is not None:
            readiness.report_failure(master.failure)
    notes.note("ended", status=status)
    logging.shutdown()
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=MasterScript)))
