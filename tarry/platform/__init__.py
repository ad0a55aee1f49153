"""What only the operating system knows or does, in two forms with the same functions: `linux` (/proc and system calls)
and `portable` (by psutil) for macOS, and for programs on Windows that only enqueue and look. Here: what Windows lacks.

TARRY_PLATFORM=portable takes the second on Linux, too: so the tests can run on it.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Callable

if sys.platform == "linux" and os.environ.get("TARRY_PLATFORM") != "portable":
    from tarry.platform.linux import (
        allocate,
        anonymous_file,
        boot,
        cpu_seconds,
        has_open,
        local_addresses,
        machine_started,
        near_folder,
        pid_namespace,
        process_state,
        reap_children,
        resident_bytes,
        send_signal,
        watch_peer,
    )
else:
    from tarry.platform.portable import (
        allocate,
        anonymous_file,
        boot,
        cpu_seconds,
        has_open,
        local_addresses,
        machine_started,
        near_folder,
        pid_namespace,
        process_state,
        reap_children,
        resident_bytes,
        send_signal,
        watch_peer,
    )

ZOMBIE = "Z"
"""The state of a process that runs nothing any more, whose parent has not asked for its end yet."""
NOFOLLOW, CLOEXEC = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_CLOEXEC", 0)
"""Flags of os.open; 0 where there are none."""


def at_fork(**hooks: Callable[[], object]) -> None:
    """As os.register_at_fork; nothing where no process can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**hooks)


def has_ended(pid: int) -> bool:
    """Whether no such process runs any more, though its parent may not have asked for its end yet; False if nobody can
    tell."""
    # Windows has no such question: the call would end the process.
    if sys.platform == "win32":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OverflowError:  # no pid at all
        return False
    except PermissionError:
        pass
    return process_state(pid)[0] == ZOMBIE


def user_id() -> int:
    """Of the effective user; 0, as stat has it for all files, where users have no numbers."""
    return os.geteuid() if hasattr(os, "geteuid") else 0


def read_at(fd: int, size: int, offset: int) -> bytes:
    """As os.pread: at most so many bytes from there; by one thread at a time where there is no such call. OSError."""
    if hasattr(os, "pread"):
        return os.pread(fd, size, offset)
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, size)


def unix_socket(kind: int) -> socket.socket:
    """A new Unix socket of this kind (`socket.SOCK_STREAM` and so on). OSError, also where there are none."""
    if not hasattr(socket, "AF_UNIX"):
        raise OSError("this system has no Unix sockets")
    return socket.socket(socket.AF_UNIX, kind)


def try_lock(fd: int) -> bool:
    """Takes the lock of this open file, which ends with its process; whether nobody had it."""
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 -- only there

            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # noqa: PLC0415 -- not there

            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def unlock(fd: int) -> None:
    """Gives back the lock of `try_lock`, also if a child that was forked has the descriptor, too. OSError."""
    if sys.platform == "win32":
        import msvcrt  # noqa: PLC0415 -- only there

        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
    else:
        import fcntl  # noqa: PLC0415 -- not there

        fcntl.flock(fd, fcntl.LOCK_UN)


__all__ = [
    "CLOEXEC",
    "NOFOLLOW",
    "ZOMBIE",
    "allocate",
    "anonymous_file",
    "at_fork",
    "boot",
    "cpu_seconds",
    "has_ended",
    "has_open",
    "local_addresses",
    "machine_started",
    "near_folder",
    "pid_namespace",
    "process_state",
    "read_at",
    "reap_children",
    "resident_bytes",
    "send_signal",
    "try_lock",
    "unix_socket",
    "unlock",
    "user_id",
    "watch_peer",
]
