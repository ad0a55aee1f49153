"""A program that has a fork server start a process in its place: the text of `tarry` and `python` in a page's shell.

It imports next to nothing, since it starts for each command.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import os
import sys
from _json import encode_basestring_ascii as quoted
from typing import NoReturn

ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)
REAL_MODULES = ("http.server", "venv")


def main(real: list[str], address: str, variables: dict[str, str], prefixes: tuple[str, ...]) -> NoReturn:
    """real: the program that is started where a forked one would not do. variables: those of the fork server that
    begin with one of these prefixes."""
    words = sys.argv[1:]
    ours = {name: text for name, text in os.environ.items() if name.startswith(prefixes)}
    order = _order(sys.argv[0], words) if ours == variables else None
    if order is None:
        os.execv(real[0], [*real, *words])
    _end_as(_run(order, address))


def _order(program: str, words: list[str]) -> str | None:
    """None: it has to be a real one."""
    if not program.endswith("/python"):
        return _said("tarry", words)
    if words[:1] and words[0].endswith(".py"):
        return _said("", words)
    if len(words) > 1 and words[0] == "-m" and words[1] not in REAL_MODULES:
        return _said(words[1], words[2:])
    return None


def _said(module: str, words: list[str]) -> str:
    environ = ",".join(f"{quoted(name)}:{quoted(text)}" for name, text in os.environ.items())
    listed = ",".join(map(quoted, words))
    place = f'"directory":{quoted(os.getcwd())},"environ":{{{environ}}}'
    return f'{{"module":{quoted(module)},"words":[{listed}],{place}}}'


def _run(order: str, address: str) -> int:
    """The status of the forked process, as `waitpid` has it. What ends us ends it."""
    file = os.memfd_create("order")
    os.write(file, order.encode())
    os.lseek(file, 0, os.SEEK_SET)
    answers, theirs = os.pipe()
    rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (file, theirs, 0, 1, 2))
    # One that comes before we know whom to pass it to waits.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, ENDING)
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    line.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)], 0, address)
    os.close(theirs)
    pid, _, rest = os.read(answers, 100).partition(b"\n")
    for number in ENDING:
        _signal.signal(number, lambda number, _: os.kill(int(pid), number))
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, ENDING)
    return int(rest or os.read(answers, 100) or 255)


def _end_as(status: int) -> NoReturn:
    if status < 0:
        _signal.signal(-status, _signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 0xFF)
