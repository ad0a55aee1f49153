"""Checks the write-ahead log before the store uses a database: SQLite silently skips a damaged place in the log, and
all that was committed behind it.

The check refuses only what no crash leaves. A crash may leave behind the last valid commit: frames of an older log,
which have another salt; part of a transaction that was never committed; a whole transaction whose process was killed
before it told the others; and pieces of several of these. Killed processes never leave two commits of this log in one
unbroken run of checksums. A power failure can, where the last commits were not synced: so if the log was not written
since this machine started, the damage is only logged.
"""

import logging
import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import apsw

from tarry import platform
from tarry.errors import StoreCorrupt

log = logging.getLogger("tarry.store")

HEADER, FRAME = 32, 24
MAGIC = 0x377F0682
"""With the lowest bit set, checksums are of big-endian words."""
# Few enough to cost 50 ms in the worst case.
LOOKED_AT = 256
"""The most frames that are checked behind the last valid commit."""
COUNTED_WITHIN = 2.0
"""Seconds that another process gets to write the header of the log's index."""

Checksums = tuple[int, int]


class Frame(NamedTuple):
    """One page in the log."""

    commits: bool
    """Whether it is the last of its transaction."""
    salt: bytes
    sums: Checksums
    content: bytes
    """The bytes that the checksum covers."""


class Log:
    """A log as it lies on the disk."""

    def __init__(self, file: BinaryIO, page_size: int) -> None:
        self._file, self._page_size = file, page_size
        # Another process may cut the log after its length was read; the missing bytes then count as zero.
        self.header = file.read(HEADER).ljust(HEADER, b"\0")
        (magic,) = struct.unpack(">I", self.header[:4])
        self._words = ">" if magic & 1 else "<"
        self.is_sound = magic & ~1 == MAGIC and self.follows((0, 0), self.header[:24], _sums(self.header[24:]))
        self.salt = self.header[16:24]

    def frame(self, number: int) -> Frame | None:
        """The frame with that number, from 1; None if the log does not have all of it."""
        size = FRAME + self._page_size
        self._file.seek(HEADER + (number - 1) * size)
        read = self._file.read(size)
        if len(read) < size:
            return None
        return Frame(read[4:8] != bytes(4), read[8:16], _sums(read[16:24]), read[:8] + read[FRAME:])

    def follows(self, before: Checksums, content: bytes, sums: Checksums) -> bool:
        """Whether `sums` is the checksum of the content that follows the checksum `before`."""
        return sums_of(self._words, before, content) == sums


def refuse_emptied(path: Path) -> None:
    """StoreCorrupt for a log beside a database that is empty or missing."""
    # SQLite deletes such a log, and all that was committed in it.
    with suppress(FileNotFoundError):
        # Between two looks another process may make both: a database first, and then its log.
        how = _empty_log(path)
        if how and log_of(path).stat().st_size > HEADER and _empty_log(path) == how:
            raise StoreCorrupt(f"{path} is {how}, and {log_of(path).name} beside it is not: {_WAYS_OUT[how]}")


_WAYS_OUT = {
    "empty": "somebody emptied the database. Move both away, together; then restore a backup, or begin anew",
    "missing": "somebody moved or deleted the database. Put it back; or move the log away, too, and begin anew",
}


def _empty_log(path: Path) -> str:
    try:
        return "" if path.stat().st_size else "empty"
    except FileNotFoundError:
        return "missing"


def check(database: Any, path: Path) -> None:
    """StoreCorrupt if committed transactions lie behind a damaged place in the log, and are lost. database: open."""
    # Only this checkpoint mode tells how many frames SQLite reads without writing any of them back.
    if not isinstance(database, apsw.Connection) or not hasattr(apsw, "SQLITE_CHECKPOINT_NOOP"):
        return
    page_size = database.pragma("page_size")
    try:
        with log_of(path).open("rb", buffering=0) as file:
            header = _header(file)
            if (valid := _valid(database)) is None:
                return
            # If another process wrote meanwhile, the bytes read are partly old and partly new: no alarm then.
            lost = _lost(file, valid, page_size) and _valid(database) == valid and _header(file) == header
            written = os.fstat(file.fileno()).st_mtime
    except OSError:
        return
    if not lost:
        return
    told = (
        f"{log_of(path)} is damaged: SQLite reads it up to frame {valid}, and behind that lie committed transactions"
        " that it passes over. Restore the database from a backup; or accept the loss:"
        f" sqlite3 {path} 'PRAGMA wal_checkpoint(TRUNCATE)'"
    )
    try:
        refuse(told, written)
    except StoreCorrupt:
        # Otherwise the last connection that closes merges the valid part into the database and deletes the rest.
        database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        raise


def refuse(told: str, written: float) -> None:
    """StoreCorrupt with this text if the files were last written since this machine started; else only logs it."""
    # Files from before the start may be what a power failure left, and that is no reason to refuse the database.
    if _since_start(written):
        raise StoreCorrupt(told)
    log.error("%s. After a power failure that may be transactions that were not synced yet", told)


def _lost(file: BinaryIO, valid: int, page_size: int) -> bool:
    if os.fstat(file.fileno()).st_size < HEADER + FRAME:
        return False
    file.seek(0)
    log = Log(file, page_size)
    commits = 0
    for follows, frame in _behind(log, valid):
        # One commit may be of a process that was killed before it told the others; two in one run are never left so.
        commits = (commits if follows else 0) + (frame.commits and follows)
        if commits == 2:
            return True
    return False


def _header(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read(HEADER)


def _valid(database: apsw.Connection) -> int | None:
    """How many frames SQLite reads at present; None if it did not say within COUNTED_WITHIN."""
    until = time.monotonic() + COUNTED_WITHIN
    while True:
        try:
            # SQLite answers -1 where it cannot count.
            return max(database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0], 0)
        except apsw.BusyError:
            # Another process is at this moment writing the index's header. A read waits for that; this call does not.
            if time.monotonic() > until:
                return None
            time.sleep(0.001)


def _behind(log: Log, valid: int) -> Iterator[tuple[bool, Frame]]:
    """The frames behind the first break, and for each whether it follows from the frame before."""
    # A frame that follows from the last valid one is no damage: it is being written now, or was never committed.
    before = log.frame(valid) if valid else None
    sums = before.sums if before is not None else _sums(log.header[24:32])
    # With a damaged header SQLite reads nothing, so all frames are behind the break, and the salt is not known.
    broken = not log.is_sound
    for number in range(valid + 1, valid + 1 + LOOKED_AT):
        frame = log.frame(number)
        if frame is None:
            return
        ours = frame.salt == log.salt or not log.is_sound
        follows = ours and log.follows(sums, frame.content, frame.sums)
        if broken:
            yield follows, frame
        broken, sums = broken or not follows, frame.sums


def _since_start(moment: float) -> bool:
    """Whether that moment is after this machine started; False where that is not known."""
    started = platform.machine_started()
    # A time in the future proves nothing; one second is for the resolution of the two clocks.
    return started is not None and started < moment <= time.time() + 1


def log_of(path: Path) -> Path:
    """The path of a database's log."""
    return path.with_name(f"{path.name}-wal")


def sums_of(words: str, before: Checksums, content: bytes) -> Checksums:
    """The checksum of content that follows the checksum `before`. words: the byte order, as `struct` writes it."""
    one, two = before
    each = iter(struct.unpack(f"{words}{len(content) // 4}I", content))
    for first, second in zip(each, each, strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def _sums(eight: bytes) -> Checksums:
    one, two = struct.unpack(">II", eight)
    return one, two
