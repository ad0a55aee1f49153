"""Executes this program again, as another master with the sockets of this one."""

import fcntl
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec import Struct

from tarry.runtime.sockets.listeners import Listeners

VARIABLE = "_TARRY_UPGRADE"
"""The environment variable of a new master; not one of the settings."""
_FIRST = 3  # The first descriptor that sd_listen_fds(3) names.
_MOST_HEAD = 1024


class Inherited(Struct, frozen=True):
    """What a new master gets from the old one, besides the sockets."""

    fd: int
    """The socket over which they talk."""
    own: int
    """How many of the sockets were opened by the old master; the others are the service manager's."""


def own_command(argv: Sequence[str], executable: str) -> list[str]:
    """The program and its arguments, as they are to be executed again.

    argv, executable: as `sys.orig_argv`, `sys.executable`. A script that names its interpreter is executed itself: if a
    link in its path leads to another release by now, the script there names another interpreter.
    """
    if len(argv) > 1 and _is_script_for(argv[0], Path(argv[1])):
        return list(argv[1:])
    return [executable, *argv[1:]]


def _is_script_for(interpreter: str, path: Path) -> bool:
    """Whether the kernel would run that file by this interpreter."""
    try:
        with path.open("rb") as script:
            head = script.read(_MOST_HEAD)
    except OSError:
        return False
    # Below a `#!/bin/sh`, pip writes the interpreter into the second line if its path is too long for the first.
    named = b"\n".join(head.splitlines()[:3])
    return head.startswith(b"#!") and os.fsencode(interpreter) in named and os.access(path, os.X_OK)


def execute_again(
    command: list[str],
    directory: Path,
    environ: Mapping[str, str],
    listeners: Listeners,
    talk: socket.socket,
) -> NoReturn:
    """In a forked child: becomes the new master, with these variables and those that tell it of its sockets. OSError.

    directory: where the command was first executed. talk: the new master's end of the pair.
    """
    os.chdir(directory)
    own, given = listeners.descriptors()
    sockets = [*own, *given]
    fds = [*(one.fileno() for _, one in sockets), talk.fileno()]
    # First above all that they are to be: else one would be overwritten before it is copied.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST + len(fds)) for fd in fds]
    for place, fd in enumerate(high, _FIRST):
        os.dup2(fd, place)
    inherited = Inherited(_FIRST + len(sockets), len(own))
    variables = {
        "LISTEN_FDS": str(len(sockets)),
        "LISTEN_PID": str(os.getpid()),
        "LISTEN_FDNAMES": ":".join(name for name, _ in sockets),
        VARIABLE: msgspec.json.encode(inherited).decode(),
    }
    os.execve(command[0], command, {**environ, **variables})


def this_command() -> list[str]:
    """The command of this process."""
    return own_command(sys.orig_argv, sys.executable)
