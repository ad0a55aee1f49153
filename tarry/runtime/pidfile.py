"""The pid file. The master locks it for as long as it lives, so a stale file can be recognised."""

import contextlib
import fcntl
import os
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Self

from tarry import files
from tarry.errors import MasterError

# Seconds for which a master tries to lock: a process that looks up the holder has a shared lock for an instant.
LOCK_LIMIT = 0.3
# Only one master at a time starts another. So whoever has its lock was killed: until all that it forked has let go of
# it, a moment may pass on a busy host.
SUCCESSOR_LOCK_LIMIT = 5.0

_REMOVAL_TIME = 0.1  # Seconds within which another process that found the same file has removed it.


class PidFile:
    """Held by one process at a time. Forked children call `close_in_child`."""

    def __init__(self, path: Path, lock_limit: float = LOCK_LIMIT) -> None:
        """lock_limit: seconds in which another master may let go of the file."""
        self._path, self._lock_limit, self._fd = path, lock_limit, -1
        self.was_left = False
        """Whether a master was killed that had it before: some of its children may be there for a moment still."""

    def __enter__(self) -> Self:
        """Takes the lock and writes our pid. MasterError: a live master has it, or the file cannot be made."""
        try:
            files.make_directory(self._path.parent)
            self._fd = self._acquire()
            self.was_left = bool(os.fstat(self._fd).st_size)
            # A stale file may hold a longer pid.
            os.ftruncate(self._fd, 0)
            os.write(self._fd, f"{os.getpid()}\n".encode())
        except OSError as error:
            raise MasterError(
                f"{self._path} cannot be written ({error.strerror}): set master.pid_file to a place that can"
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Removes the file while it is still ours."""
        with contextlib.suppress(OSError):
            # Before the lock ends: later the path may be another master's file. After an upgrade it is already.
            if _is_same_file(self._fd, self._path):
                self._path.unlink()
        self.close_in_child()

    def move_to(self, path: Path) -> None:
        """Takes the place of the file at that path, also if another master holds its lock. OSError."""
        os.replace(self._path, path)
        self._path = path

    def close_in_child(self) -> None:
        """In a forked child: closes its descriptor without unlocking."""
        if self._fd >= 0:
            # Closed and not unlocked: a forked child shares the lock, and must not take it from the master.
            os.close(self._fd)
            self._fd = -1

    def _acquire(self) -> int:
        """Opens and locks the file; only this user and root may open it."""
        # Another user's lock on it would prevent our start, and another writer could choose which process `tarry
        # stop` signals.
        limit, replaced = monotonic() + self._lock_limit, False
        while True:
            fd = files.open_private(self._path, os.O_RDWR | os.O_CREAT, files.OURS)
            taken = _try_lock(fd, fcntl.LOCK_EX)
            if taken and _is_private(fd) and _is_current(fd, self._path, replaced):
                return fd
            late = monotonic() > limit
            try:
                # A master's lock is exclusive, so a shared lock belongs to no master.
                if taken or (late and _try_lock(fd, fcntl.LOCK_SH)):
                    _remove(fd, self._path)
                    replaced = True
                elif late:
                    raise MasterError(
                        f"a master is already running, {_describe_pid(holder(self._path))} ({self._path})"
                    )
            finally:
                os.close(fd)
            sleep(0.01)


def holder(path: Path) -> int | None:
    """The pid of the live master that holds the lock; None: no master does. A pid without a lock counts for nothing."""
    limit = monotonic() + 1
    while True:
        try:
            fd = files.open_private(path, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise MasterError(f"{path} cannot be read ({error.strerror}): run this as the master's user") from None
        try:
            # A master's lock is exclusive, so it cannot be locked now.
            is_free = _try_lock(fd, fcntl.LOCK_SH)
            # In an upgrade, the file of the new master may have taken the place of this one since it was opened.
            if is_free and (_is_same_file(fd, path) or monotonic() > limit):
                return None
            text = b"" if is_free else os.read(fd, 32)
        finally:
            os.close(fd)
        if text.strip().isdigit():
            return int(text)
        if monotonic() > limit:
            raise MasterError(f"{path} is locked but holds no pid: it is not the pid file of a master")
        sleep(0.01)  # it was locked a moment ago and is not written yet


def is_free_within(path: Path, limit: float) -> bool:
    """Whether no master holds the lock, or one that is dying lets go of it within so many seconds."""
    end = monotonic() + limit
    while holder(path) is not None:
        if monotonic() > end:
            return False
        sleep(0.01)
    return True


def _is_private(fd: int) -> bool:
    """False: it belongs to another user, or others may open it, as files of earlier releases."""
    found = os.fstat(fd)
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _is_current(fd: int, path: Path, replaced: bool) -> bool:
    """True: the locked file is still the one at the path. replaced: we removed a file with a shared lock."""
    if replaced:
        # Another process that found the same file may remove the one that we have just made.
        sleep(_REMOVAL_TIME)
    return _is_same_file(fd, path)


def _remove(fd: int, path: Path) -> None:
    """Removes the file if it is still the one at the path."""
    if _is_same_file(fd, path):
        with contextlib.suppress(FileNotFoundError):
            # The next try makes a new file, which only this user can open.
            os.unlink(path)


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(fd: int, path: Path) -> bool:
    """False: a master that ended has removed the file between our opening and locking it."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _describe_pid(pid: int | None) -> str:
    return "its pid unknown" if pid is None else f"pid {pid}"
