"""Checks the index of the write-ahead log (`-shm`) before a database is opened: it says how much the log must hold.

SQLite makes the index anew at the first opening after a crash, and accepts a log that was cut or deleted as it is: the
commits in the missing part are silently gone. Until then the index that the crash left tells of them.
"""

import contextlib
import os
import struct
from pathlib import Path
from typing import NamedTuple

from tarry.platform import CLOEXEC, read_at
from tarry.store.sqlite.link import wal

_HEADER, _SIZE, _MERGED = 48, 100, 132
"""Bytes: of one header, which is there twice; of both headers and the number of frames that are in the database; up to
the number of frames that a merge was begun with."""
# SQLite's locks are on this file, and all locks of this process on it end when any descriptor of it is closed. So one
# descriptor stays open for as long as the file has a name.
_kept: dict[int, tuple[int, int]] = {}
"""Open descriptors of indexes and databases, each with its device and inode."""


class Index(NamedTuple):
    """What the index says about a log, in the byte order of this machine."""

    header: bytes
    page_size: int
    frames: int
    """How many frames were committed."""
    merged: int
    """How many of them are in the database already."""
    salt: bytes
    """The salt of the log that the index belongs to."""

    @property
    def length(self) -> int:
        """The least number of bytes that the log must have."""
        return wal.HEADER + self.frames * (wal.FRAME + self.page_size)


class Merges(NamedTuple):
    """How much of a log SQLite has written into the database."""

    salt: bytes
    """Of the log."""
    done: int
    """How many of its frames are in the database."""
    begun: int
    """How many will be, once the merge that is under way has ended."""


def merges(path: Path) -> Merges | None:
    """The merges of the log of the database at this path, no link; None if nothing is known of them."""
    try:
        read = read_at(kept_descriptor(path.with_name(f"{path.name}-shm")), _MERGED, 0)
    except OSError:
        return None
    if len(read) < _MERGED:
        return None
    (done,), (begun,) = struct.unpack("=I", read[_SIZE - 4 : _SIZE]), struct.unpack("=I", read[-4:])
    return Merges(read[32:40], done, begun)


def refuse_cut(path: Path) -> None:
    """StoreCorrupt if the log lacks committed transactions that are not in the database. Call it before opening."""
    # SQLite follows links too: the log and the index are beside the file itself.
    path = Path(os.path.realpath(path))
    with contextlib.suppress(OSError):
        # Without a database there is nothing to lose: its owner begins anew.
        os.stat(path)
        descriptor = kept_descriptor(path.with_name(f"{path.name}-shm"))
        before = _index(descriptor)
        if before is None or before.frames <= before.merged:
            return
        there = _length(path, before.salt)
        if there is None or there >= before.length:
            return
        # Other processes may use the database meanwhile. A commit is in the log before it is in the index. Before a
        # process cuts, deletes or restarts the log, all of it is in the database and the index says so; a log that was
        # cut or restarted has another header in the index. So only a header that is still the same proves a loss.
        after = _index(descriptor)
        if after is None or after.header != before.header or after.frames <= after.merged:
            return
        wal.refuse(_loss(path, after, there), max(os.fstat(descriptor).st_mtime, _modified_at(path)))


def _loss(path: Path, index: Index, there: int) -> str:
    log = wal.log_of(path)
    what = f"was cut to {there} bytes" if log.exists() else "is missing"
    return (
        f"{log} {what}, but transactions up to byte {index.length} were committed, and are not all in the database."
        f" Put the log back, or restore the database from a backup; or stop all that use it and accept the loss: rm"
        f" {path}-shm"
    )


def _length(path: Path, salt: bytes) -> int | None:
    """The length of the log in bytes, 0 if there is none; None if it has another salt."""
    try:
        with wal.log_of(path).open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            header = file.read(wal.HEADER)
    except FileNotFoundError:
        return 0
    return length if len(header) < wal.HEADER or header[16:24] == salt else None


def _modified_at(path: Path) -> float:
    try:
        return wal.log_of(path).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _index(descriptor: int) -> Index | None:
    """What the index says; None if it is not whole."""
    read = read_at(descriptor, 2 * _HEADER + 4, 0)
    header = read[:_HEADER]
    # Two copies that differ: a process is writing the header now, or died while it did. Byte 12: it is complete.
    if len(read) < _SIZE or header != read[_HEADER : 2 * _HEADER] or not header[12]:
        return None
    if wal.sums_of("=", (0, 0), header[:40]) != struct.unpack("=2I", header[40:]):
        return None
    size, frames = struct.unpack("=HI", header[14:20])
    (merged,) = struct.unpack("=I", read[2 * _HEADER :])
    # The largest page size, 65536, does not fit into 16 bits: SQLite writes 1 for it.
    return Index(header, (size & 0xFE00) + ((size & 1) << 16), frames, merged, header[32:40])


def kept_descriptor(path: Path) -> int:
    """A descriptor of this file, open for as long as the file has a name. OSError."""
    found = os.stat(path)
    for descriptor, inode in list(_kept.items()):
        if not _is_still(descriptor, inode):
            _kept.pop(descriptor, None)
        elif inode == (found.st_dev, found.st_ino):
            return descriptor
    descriptor = os.open(path, os.O_RDONLY | CLOEXEC)
    opened = os.fstat(descriptor)
    _kept[descriptor] = (opened.st_dev, opened.st_ino)
    return descriptor


def _is_still(descriptor: int, inode: tuple[int, int]) -> bool:
    """Whether the descriptor is open and of use; closes it if its file was deleted."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    # Other code closed the descriptor, and its number belongs to another file now.
    if (found.st_dev, found.st_ino) != inode:
        return False
    if found.st_nlink:
        return True
    # Nobody uses a deleted index, so its locks may end. Only one of two threads may close it: right after that the
    # number may belong to another file.
    if _kept.pop(descriptor, None) is not None:
        os.close(descriptor)
    return False
