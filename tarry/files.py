"""Private files: created with narrow rights, whatever the umask, and not opened through the symbolic link of another
user."""

import contextlib
import os
import stat
from pathlib import Path
from secrets import token_hex

from tarry.platform import CLOEXEC, NOFOLLOW, user_id

OURS, GROUP = 0o600, 0o640
"""For the owner alone; and for the group to read."""
FOLDER = 0o750


def open_private(path: Path | str, flags: int, mode: int = GROUP) -> int:
    """As os.open; a new file has at most these rights. OSError also if the path is a symbolic link that neither root
    nor this user made."""
    # O_NOFOLLOW: another user could plant a link here, and we would write into the file that it points to.
    try:
        return os.open(path, flags | NOFOLLOW | CLOEXEC, mode)
    except OSError:
        if not _own_link(path):
            raise
    # A link of root or of ours is there on purpose: `/dev/stderr`, or a place on another disk.
    return os.open(os.path.realpath(path), flags | CLOEXEC, mode)


def make(path: Path, mode: int = GROUP) -> None:
    """Creates an empty file with these rights if there is none. If that fails, the error is left to the code that opens
    the file. PermissionError: the path is a link that neither root nor this user made."""
    if os.path.islink(path) and not _own_link(path):
        raise PermissionError(f"{path} is a symbolic link of another user's; remove it")
    # An existing file is not opened: SQLite loses its locks when anything in this process closes the file.
    if os.path.lexists(path):
        return
    # For the same reason a new file is closed before it gets its name, under which others may open and lock it.
    fresh = path.with_name(f"{path.name}.{token_hex(4)}")
    with contextlib.suppress(OSError):
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOEXEC, mode))
        try:
            _move_into_place(fresh, path, mode)
        finally:
            os.unlink(fresh)


def replace(path: Path, content: bytes, mode: int = OURS) -> None:
    """Replaces the file as a whole: who reads it meanwhile sees the old or the new one. It is on the disk when this
    returns, and has just these rights. OSError."""
    # A name that nobody can guess, and O_EXCL: whoever may write to the directory could plant a link under another.
    fresh = path.with_name(f".{path.name}.{token_hex(8)}")
    try:
        with open(_create(fresh, mode), "wb") as file:
            if hasattr(os, "fchmod"):  # not on Windows
                os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


def make_directory(path: Path, mode: int = FOLDER) -> None:
    """Makes the directory, and those above it that are missing, with at most these rights. OSError."""
    # Not `mkdir(parents=True)`: it gives the ones above all rights that the umask leaves.
    for folder in reversed([one for one in (path, *path.parents) if not one.exists()]):
        folder.mkdir(mode, exist_ok=True)


def _create(path: Path, mode: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC, mode)


def _move_into_place(fresh: Path, path: Path, mode: int) -> None:
    """Gives the new file its name, unless another process has just created one."""
    # A link, not a rename: a rename would replace the file of the other process.
    try:
        os.link(fresh, path)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOEXEC, mode))


def _own_link(path: Path | str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) and found.st_uid in (0, user_id())
