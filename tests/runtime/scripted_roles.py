"""Small roles for a real master: `python -m tests.runtime.scripted_roles DIRECTORY SCRIPT`. They note what they do."""

import logging
import os
import select
import signal
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
from tarry.runtime.daemon import daemonize
from tarry.runtime.logs import handlers
from tarry.runtime.master import Master
from tarry.runtime.role import CANARY, KEEPER, Child, Plan, Role, Wear
from tarry.runtime.scoreboard import board_path

FIRST, SECOND = bytes(range(16)), bytes(range(16, 32))


class Script(Struct):
    roles: list[tuple[str, str, int, str]]
    """(name, pool, count, actor)."""
    grace: float = 8.0
    boot_limit: float = 60.0
    interrupt_at_birth: bool = False
    """Every child gets an INT in the instant after its fork."""
    deaf: bool = False
    """Started as by `nohup ... &`: INT and QUIT are ignored."""
    forks_fail: list[int] = []
    """Which forks fail, counted from 1."""
    cells: int = 2
    canary: str = "sings"
    wear: Wear = Wear()
    reload_timeout: float = 0.0
    daemon: bool = False
    crash: str = ""
    """A daemon that ends before it serves: "raise" or "die"."""


class Stage:
    """The facts file, written with one write a line."""

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


def heard(child: Child, limit: int | None = None) -> list[int]:
    """Sleeps until a signal, a line or the master's end; milliseconds, None: however long."""
    sleeper = select.poll()
    sleeper.register(child.signals, select.POLLIN)
    sleeper.register(child.parent_fd, select.POLLIN)
    sleeper.poll(limit)
    return child.signals.take()


def until_asked(stage: Stage, child: Child) -> int:
    while not child.orphaned:
        taken = heard(child)
        if signal.SIGINT in taken or signal.SIGTERM in taken:
            stage.note("asked")
            return 0
        child.lines()
    stage.note("orphaned")
    return 0


def begin(stage: Stage, child: Child) -> None:
    child.slot.own(f"owner-{os.getpid()}")
    child.slot.beat(12345678)
    # First, since the master may ask the one before it to end as soon as it hears of it.
    stage.note("ready", number=child.number, pool=child.pool)
    child.ready()


def plain(stage: Stage, child: Child) -> int:
    begin(stage, child)
    return until_asked(stage, child)


def sings(stage: Stage, child: Child) -> int:
    """A canary that lives."""
    stage.note("sang")
    child.ready()
    return 0


def never_sings(stage: Stage, child: Child) -> int:
    return until_asked(stage, child)


def drops(stage: Stage, child: Child) -> int:
    return 7


def dies(stage: Stage, child: Child) -> int:
    return child.failed("no module named shop")


def busy(stage: Stage, child: Child) -> int:
    """At two jobs."""
    child.slot.on(0, FIRST, 3, b"shop.first", 0.0)
    child.slot.on(1, SECOND, 4, "shop.zweites·".encode(), 0.0)
    child.slot.count(7, 2)
    return plain(stage, child)


def lingers(stage: Stage, child: Child) -> int:
    """Outlives its master until it may go."""
    status = busy(stage, child)
    while not (stage.directory / "go").exists():
        time.sleep(0.01)
    return status


def let_in(stage: Stage, child: Child) -> bool:
    """Waits at the door; False: told to go, or left alone."""
    stage.note("at the door")
    while not (stage.directory / "go").exists():
        if {signal.SIGINT, signal.SIGTERM} & set(heard(child, 10)):
            return False
        child.lines()
        if child.orphaned:
            return False
    return True


def stays(stage: Stage, child: Child) -> int:
    """Goes once it was asked and may go; or at once, when it is left alone."""
    status = plain(stage, child)
    while not child.orphaned and not (stage.directory / "go").exists():
        heard(child, 10)
        child.lines()
    return status


def late(stage: Stage, child: Child) -> int:
    """Is ready once it may be."""
    return stays(stage, child) if let_in(stage, child) else 0


def sings_late(stage: Stage, child: Child) -> int:
    return sings(stage, child) if let_in(stage, child) else 0


def worn(stage: Stage, child: Child) -> int:
    """Of the first two, one has done its part; who comes after them is late."""
    if stage.first_time("first"):
        child.slot.count(7, 0)
        return stays(stage, child)
    return stays(stage, child) if stage.first_time("second") else late(stage, child)


def one_bad(stage: Stage, child: Child) -> int:
    """Where the first sits, nobody can begin a second time."""
    again = child.number == 1 and not stage.first_time("one")
    return child.failed("gone bad") if again else stays(stage, child)


def stubborn(stage: Stage, child: Child) -> int:
    child.slot.on(0, FIRST, 3, b"shop.first", 0.0)
    begin(stage, child)
    while not child.orphaned:
        if heard(child):
            stage.note("ignored")
        child.lines()
    return 0


def overdue(stage: Stage, child: Child) -> int:
    """The first of them is at a job that takes too long, and at one that does not."""
    if stage.first_time("overdue"):
        child.slot.on(0, FIRST, 3, b"shop.first", time.monotonic() + 0.2)
        child.slot.on(1, SECOND, 4, b"shop.second", time.monotonic() + 1000)
    return plain(stage, child)


def breeder(stage: Stage, child: Child) -> int:
    grandchild = subprocess.Popen(["sleep", "1000"])
    stage.note("grandchild", born=grandchild.pid)
    return plain(stage, child)


def cannot_boot(stage: Stage, child: Child) -> int:
    return child.failed("no module named shop\nTraceback follows")


def cannot_boot_again(stage: Stage, child: Child) -> int:
    return plain(stage, child) if stage.first_time(f"boot{child.number}") else child.failed("gone bad")


def vanishes(stage: Stage, child: Child) -> int:
    return 7


def never_ready(stage: Stage, child: Child) -> int:
    return until_asked(stage, child)


def crashes(stage: Stage, child: Child) -> int:
    begin(stage, child)
    raise ValueError("a bug in the role")


def crash_loop(stage: Stage, child: Child) -> int:
    """Serves the first time, then ends whenever it begins."""
    first = stage.first_time("loop")
    begin(stage, child)
    return until_asked(stage, child) if first else 1


def leaker(stage: Stage, child: Child) -> int:
    """Leaves a thread behind that never ends, and words in a buffer."""
    threading.Thread(target=threading.Event().wait).start()
    status = plain(stage, child)
    print("last words", end="")
    return status


def nosy(stage: Stage, child: Child) -> int:
    """Notes what it inherited."""
    own = {0, 1, 2}
    links = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in map(int, os.listdir("/proc/self/fd")) if _open(fd)}
    mask = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    handlers = {signal.Signals(n).name: callable(signal.getsignal(n)) for n in signal.valid_signals() if n < 32}
    recorded = sorted(name for name, caught in handlers.items() if caught)
    others = [link for fd, link in links.items() if fd not in own]
    stage.note("nosy", fds=others, mask=mask, recorded=recorded, stdin=links[0], group=os.getpgid(0))
    return plain(stage, child)


def _open(fd: int) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def keeper(stage: Stage, child: Child) -> int:
    """Answers."""
    return _keep(stage, child, lambda: True)


def mute_once(stage: Stage, child: Child) -> int:
    """The first of them hears and does not answer."""
    first = stage.first_time("mute")
    return _keep(stage, child, lambda: not first)


def mute(stage: Stage, child: Child) -> int:
    return _keep(stage, child, lambda: False)


def _keep(stage: Stage, child: Child, answers: Callable[[], bool]) -> int:
    child.ready()
    stage.note("keeper")
    while not child.orphaned:
        if signal.SIGINT in heard(child):
            stage.note("keeper asked")
            return 0
        for line in child.lines():
            stage.note("told", line=line)
            if answers():
                child.answer({"returned": line["gone"]})
    stage.note("orphaned")
    return 0


def hasty_forks(script: Script) -> None:
    """Makes forks fail, or signals children at once, where no test could be fast enough."""
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


def planned(stage: Stage, script: Script) -> Plan:
    def role(name: str, pool: str, count: int, actor: str) -> Role:
        wear = Wear() if name == KEEPER else script.wear
        return Role(name, pool, count, script.cells, lambda child: globals()[actor](stage, child), wear)

    canary = role(CANARY, "", 1, script.canary) if script.canary else None
    roles = [role(*each) for each in script.roles]
    return Plan(roles, canary, script.grace, script.reload_timeout, script.boot_limit)


def replanned(stage: Stage) -> Plan:
    """What the file `next` says."""
    try:
        script = msgspec.json.decode((stage.directory / "next").read_bytes(), type=Script)
    except msgspec.DecodeError as error:
        raise ConfigError(f"next: {error}") from None
    return planned(stage, script)


def main(directory: Path, script: Script) -> int:
    readiness = daemonize(directory / "output") if script.daemon else None
    stage = Stage(directory)
    pid_file = directory / "run" / "tarry.pid"
    handlers.configure(directory / "log")
    if script.crash == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    hasty_forks(script)
    if script.deaf:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)

    def serving() -> None:
        stage.note("serving")
        if readiness is not None:
            time.sleep(0.2)  # whoever does not wait for us is caught by this
            stage.note("told so")
            readiness.serving()

    print("first words, ", end="")  # in the buffer at every fork
    plan = planned(stage, script)
    master = Master(plan, pid_file, board_path(pid_file), serving, lambda: replanned(stage))
    try:
        status = master.run()
    except MasterError as error:
        status, master.failure = 1, str(error)
    if master.failure:
        print(master.failure, file=sys.stderr)
        if readiness is not None:
            readiness.failed(master.failure)
    stage.note("ended", status=status)
    logging.shutdown()
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Script)))
