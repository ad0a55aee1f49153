"""A look at the index of the write-ahead log (`-shm`) before a database is opened: it says how much the log must hold.

SQLite begins the index anew at the first opening after a crash, and takes a log that was cut or deleted as it is: what
was committed in the rest is gone without a word. Until then the index that the crash left tells of it.

Processes that use the database meanwhile raise no alarm. A commit is in the log before it is in the index; all of the
log is in the database, and the index says so, before anybody deletes or cuts it or begins it anew; and where it is cut
or begun anew, the index has another header by then. So what counts is a header that is the same before and after the
look at the log.
"""

import contextlib
import os
import struct
from pathlib import Path
from typing import NamedTuple

from tarry.store.sqlite import wal

_HEADER, _SIZE = 48, 100
"""Bytes: of the header, which is there twice; of both with the number of frames that are in the database."""
_kept: dict[int, tuple[int, int]] = {}
"""Descriptors of indexes, and of which device and inode. SQLite's locks are on this file, and all that this process has
there end when any descriptor of it is closed, so one is kept for as long as the file has a name."""


class Index(NamedTuple):
    """What is said about a log, in the byte order of this machine."""

    header: bytes
    page_size: int
    frames: int
    """That were committed."""
    merged: int
    """How many of them are in the database already."""
    salt: bytes
    """Of the log that it is of."""

    @property
    def length(self) -> int:
        """Bytes that the log has at least."""
        return wal.HEADER + self.frames * (wal.FRAME + self.page_size)


def refuse_cut(path: Path) -> None:
    """StoreCorrupt if the log lacks committed transactions that are not in the database. Before it is opened."""
    path = Path(os.path.realpath(path))  # where SQLite has the other files
    with contextlib.suppress(OSError):
        os.stat(path)  # whoever deleted the database, too, begins anew
        descriptor = _descriptor(path.with_name(f"{path.name}-shm"))
        before = _index(descriptor)
        if before is None or before.frames <= before.merged:
            return
        there = _length(path, before.salt)
        if there is None or there >= before.length:
            return
        after = _index(descriptor)
        if after is None or after.header != before.header or after.frames <= after.merged:
            return
        wal.refuse(_loss(path, after, there), max(os.fstat(descriptor).st_mtime, _changed(path)))


def _loss(path: Path, index: Index, there: int) -> str:
    log = wal.log_of(path)
    what = f"was cut to {there} bytes" if log.exists() else "is missing"
    return (
        f"{log} {what}, but transactions up to byte {index.length} were committed, and are not all in the database."
        f" Put the log back, or restore the database from a backup; or stop all that use it and accept the loss: rm"
        f" {path}-shm"
    )


def _length(path: Path, salt: bytes) -> int | None:
    """Of the log, 0 if there is none; None if it is another one."""
    try:
        with wal.log_of(path).open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            header = file.read(wal.HEADER)
    except FileNotFoundError:
        return 0
    return length if len(header) < wal.HEADER or header[16:24] == salt else None


def _changed(path: Path) -> float:
    try:
        return wal.log_of(path).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _index(descriptor: int) -> Index | None:
    """None: nothing that is whole."""
    read = os.pread(descriptor, 2 * _HEADER + 4, 0)
    header = read[:_HEADER]
    if len(read) < _SIZE or header != read[_HEADER : 2 * _HEADER] or not header[12]:
        return None
    if wal.sums_of("=", (0, 0), header[:40]) != struct.unpack("=2I", header[40:]):
        return None
    size, frames = struct.unpack("=HI", header[14:20])
    (merged,) = struct.unpack("=I", read[2 * _HEADER :])
    # The largest page size, 65536, does not fit: it stands there as 1.
    return Index(header, (size & 0xFE00) + ((size & 1) << 16), frames, merged, header[32:40])


def _descriptor(path: Path) -> int:
    """Of this file, open for as long as it has a name. OSError."""
    found = os.stat(path)
    for descriptor, inode in list(_kept.items()):
        if not _is_still(descriptor, inode):
            _kept.pop(descriptor, None)
        elif inode == (found.st_dev, found.st_ino):
            return descriptor
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    opened = os.fstat(descriptor)
    _kept[descriptor] = (opened.st_dev, opened.st_ino)
    return descriptor


def _is_still(descriptor: int, inode: tuple[int, int]) -> bool:
    """Whether that is open and of use; closes it if its file was deleted: nobody uses that any more."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    if (found.st_dev, found.st_ino) != inode:
        return False  # closed by somebody, and now another file's
    if found.st_nlink:
        return True
    # Of two threads only one may close it: the number may be another file's at once.
    if _kept.pop(descriptor, None) is not None:
        os.close(descriptor)
    return False
