"""Files that are not for everybody: made with rights that no umask widens, and never reached by a stranger's link."""

import contextlib
import os
import stat
from pathlib import Path
from secrets import token_hex

OURS, GROUP = 0o600, 0o640
"""For the owner alone; and for the group to read."""


def opened(path: Path | str, flags: int, mode: int = GROUP) -> int:
    """As os.open. What is made has these rights at most. OSError: also where the path is a symbolic link, unless root
    or we made the link (`/dev/stderr`, or a place on another disk)."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except OSError:
        if not _own_link(path):
            raise
    return os.open(os.path.realpath(path), flags | os.O_CLOEXEC, mode)


def make(path: Path, mode: int = GROUP) -> None:
    """Makes an empty file if there is none, under its name at once with its rights; never opens one that is there: for
    SQLite, whose locks end when anybody in the process closes the file. What cannot be made is left to whoever opens it
    to complain of. PermissionError: a link that neither root nor we made."""
    if os.path.islink(path) and not _own_link(path):
        raise PermissionError(f"{path} is a symbolic link of another user's; remove it")
    if os.path.lexists(path):
        return
    fresh = path.with_name(f"{path.name}.{token_hex(4)}")
    with contextlib.suppress(OSError):
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        try:
            _put(fresh, path, mode)
        finally:
            os.unlink(fresh)


def _put(fresh: Path, path: Path, mode: int) -> None:
    """Two who make it at once make one."""
    try:
        os.link(fresh, path)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))


def _own_link(path: Path | str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) and found.st_uid in (0, os.geteuid())
