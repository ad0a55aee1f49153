"""`python -m tarry ...`, forked from a process that has imported all of it: to import takes ten times as long.

Such a process has its own directory, variables, arguments and descriptors, and ends as the interpreter ends. Two things
are otherwise than in a real one: it is not a child of the test's process, and `/proc/PID/environ` has the variables of
the fork server. Where they matter, or how Python starts, a test starts a real one.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import os
import runpy
import select
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NoReturn

import apsw
import msgspec

from tarry import forks
from tarry.cli.main import COMMAND_MODULES

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "FORKED_BY_THE_TESTS"
"""Which the fork server has, and so each process that is forked from it."""
MODULES = "MODULES_OF_THE_TESTS"
"""A variable that names modules which the fork server imports, too: children of a master import them else."""

READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_")
"""Variables that Python reads when it starts: with others than the fork server's, a command is a real process."""

_LATER = (
    "asyncio tarry.store.sqlite.store tarry.store.memory.store tarry.process.alerting tarry.alert.monitor"
    " tarry.alert.mail tarry.push.catalog tarry.push.delivery.coordinator tarry.server.serving.server"
    " tarry.server.serving.application tarry.server.http.protocol tarry.server.beanstalk.beanstalk_connection"
    " tarry.store.redis.store tarry.store.postgres.store tarry.store.mysql.store tarry.store.shards.sharded"
    " tarry.cli.top.live_screen"
)
"""What commands, and the children of a master, import only once they need it: else half of the CPU of their start, and
of a server or a dashboard nine tenths. To fork takes no longer with them. Of an extra that is missing: nothing."""

_SERVER = """
import sys
sys.path.append(sys.argv[1])
from tests.cli import forked
sys.path.pop()
forked.main(*sys.argv[2:])
"""
_DIED = 255


class _Order(msgspec.Struct):
    """What a process is to be."""

    module: str
    """Empty: the first of the words is the file of a script."""
    words: list[str]
    directory: str
    environ: dict[str, str]


class ModuleProcess(subprocess.Popen[Any]):
    """A Popen of `python -m MODULE WORDS`."""

    def __init__(
        self,
        module: str,
        words: Sequence[str],
        *,
        cwd: Path = ROOT,
        env: dict[str, str] | None = None,
        is_real: bool = False,
        **rest: Any,
    ) -> None:
        self._order = _Order(module, list(words), str(cwd), env or dict(os.environ))
        self._is_real = is_real or _read_at_start(self._order.environ) != _read_at_start(dict(os.environ))
        self._answers: IO[bytes] | None = None
        super().__init__([sys.executable, "-m", module, *words], cwd=cwd, env=env, **rest)

    def _execute_child(self, *all: Any) -> None:
        if self._is_real:
            super()._execute_child(*all)  # type: ignore[misc]
            return
        pipes = all[10:16]
        stdin, stdout, stderr = (fd if fd != -1 else place for place, fd in enumerate((pipes[0], pipes[3], pipes[5])))
        self._answers = fork_server().start(self._order, [stdin, stdout, stderr])
        self.pid = int(self._answers.readline())
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def poll(self) -> int | None:
        return self._ended_within(0) if self._answers else super().poll()

    def _internal_poll(self, *all: Any, **named: Any) -> int | None:
        return self._ended_within(0) if self._answers else super()._internal_poll(*all, **named)  # type: ignore[misc]

    def _wait(self, timeout: float | None) -> int:
        if not self._answers:
            return super()._wait(timeout)  # type: ignore[misc,no-any-return]
        if (status := self._ended_within(timeout)) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def _ended_within(self, timeout: float | None) -> int | None:
        assert self._answers is not None
        if self.returncode is None and select.select([self._answers], [], [], timeout)[0]:
            self.returncode = int(self._answers.readline() or _DIED)
            self._answers.close()
        return self.returncode


class TarryProcess(ModuleProcess):
    """A Popen of `python -m tarry WORDS`."""

    def __init__(self, words: Sequence[str], **rest: Any) -> None:
        super().__init__("tarry", words, **rest)


def run_module(
    module: str, words: Sequence[str], *, stdin: str = "", limit: float = 120.0, **rest: Any
) -> "subprocess.CompletedProcess[str]":
    """To its end, or it is killed after so many seconds, and `subprocess.TimeoutExpired` raised."""
    pipe = subprocess.PIPE
    with ModuleProcess(module, words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **rest) as process:
        try:
            out, err = process.communicate(stdin, limit)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


class ForkServer:
    """One for each process of tests."""

    def __init__(
        self, directory: Path = ROOT, environ: Mapping[str, str] = os.environ, address: Path | None = None
    ) -> None:
        """directory: where it finds tarry, before what `environ` says. address: a socket by which other processes
        order some, too."""
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as others:
            if address:
                others.bind(str(address))
            lines = [theirs.fileno(), others.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVER, str(ROOT), *map(str, lines)],
                cwd=directory,
                env={**environ, VARIABLE: "1", "PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=lines,
            )
        self.pid = os.getpid()

    def start(self, order: _Order, standard: list[int]) -> IO[bytes]:
        """Where its pid can be read, and once it has ended, its status. standard: its stdin, stdout and stderr."""
        read, write = os.pipe()
        with tempfile.TemporaryFile() as file:
            file.write(msgspec.json.encode(order))
            file.seek(0)
            socket.send_fds(self._line, [b"."], [file.fileno(), write, *standard])
        os.close(write)
        return open(read, "rb", buffering=0)

    def close(self) -> None:
        if self.pid == os.getpid():
            self._line.close()
            self._process.communicate()


@functools.cache
def fork_server() -> ForkServer:
    """It ends with this process."""
    server = ForkServer()
    atexit.register(server.close)
    return server


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    """Of these variables, those that Python reads when it starts."""
    ours = {name: text for name, text in environ.items() if name.startswith(READ_AT_START)}
    ours.pop("PYTHONDONTWRITEBYTECODE", None)
    return ours


def main(*lines: str) -> None:
    """Forks what it is told to, and tells how each ended, until nobody is left to tell it."""
    for module in [*COMMAND_MODULES, *os.environ.get(MODULES, "").split()]:
        importlib.import_module(module)
    for module in _LATER.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    # What it becomes has its own place for a module of that name.
    for module in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[module]
    gc.collect()
    gc.freeze()
    if (order := _serve([socket.socket(fileno=int(line)) for line in lines])) is not None:
        _become(order)


def _serve(lines: Sequence[socket.socket]) -> _Order | None:
    """In a process that was forked, what it is to be; None at the end."""
    with selectors.DefaultSelector() as ready:
        for line in lines:
            ready.register(line, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if not isinstance(key.fileobj, socket.socket):
                    ready.unregister(key.fileobj)
                    _tell_end(key.fd, *key.data)
                    continue
                said, fds, *_ = socket.recv_fds(key.fileobj, 1, 5)
                if not said:
                    return None
                if (order := _fork(ready, fds)) is not None:
                    return order


def _fork(ready: selectors.BaseSelector, fds: list[int]) -> _Order | None:
    file, answers, *standard = fds
    pid = os.fork()
    if not pid:
        for place, fd in enumerate(standard):
            os.dup2(fd, place)
        with open(file, "rb") as order:
            return msgspec.json.decode(order.read(), type=_Order)
    for fd in (file, *standard):
        os.close(fd)
    os.write(answers, b"%d\n" % pid)
    ready.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, answers))
    return None


def _tell_end(fd: int, pid: int, answers: int) -> None:
    _, status = os.waitpid(pid, 0)
    # A test that is over does not listen any more.
    with contextlib.suppress(BrokenPipeError):
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))
    os.close(answers)
    os.close(fd)


def _become(order: _Order) -> None:
    """Everything by which a process could tell that it was not started as `python -m`."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(order.directory)
    os.environ.clear()
    os.environ.update(order.environ)
    time.tzset()
    forks.depth = 0
    sys.dont_write_bytecode = True
    pid = os.getpid()
    try:
        (_run_module if order.module else _run_script)(order)
    except SystemExit as end:
        # What it has forked ends as always: it may have connections of its parent, which are not for it to close.
        if os.getpid() == pid:
            _end(end.code)
        raise


def _run_module(order: _Order) -> None:
    sys.path[0] = order.directory
    sys.argv[:] = ["", *order.words]
    sys.orig_argv[:] = [sys.executable, "-m", order.module, *order.words]
    runpy.run_module(order.module, run_name="__main__", alter_sys=True)


def _run_script(order: _Order) -> NoReturn:
    sys.path[0] = os.path.realpath(os.path.dirname(order.words[0]))
    sys.argv[:] = order.words
    sys.orig_argv[:] = [sys.executable, *order.words]
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = os.path.abspath(order.words[0])
    exec(compile(Path(main.__file__).read_bytes(), main.__file__, "exec"), vars(main))
    raise SystemExit(0)


def _end(status: object) -> None:
    """Does what Python does at its end, but for taking all modules apart, which would copy each of their pages."""
    if not isinstance(status, int):
        return
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    # Whoever closes a database last merges its log into it.
    for connection in apsw.connections():
        with contextlib.suppress(apsw.Error):
            connection.close()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status & 0xFF)
