"""A look at the write-ahead log before a database is used: SQLite passes over what is damaged there, and over all that
was committed behind it, without a word.

Only what no crash leaves is refused. A crash may leave behind the last valid commit: frames of an older log, known by
their salt; the part of a transaction that was never committed; a whole one that the process was killed in before it
told the others; and pieces of several such. Two commits of this log in one unbroken run of checksums are never left by
processes that were killed. A power failure can leave them, where the last commits were not synced: so if the log was
not written since this machine started, that is only told.
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

from tarry.errors import StoreCorrupt

log = logging.getLogger("tarry.store")

HEADER, FRAME = 32, 24
MAGIC = 0x377F0682
"""With the lowest bit set, checksums are of big-endian words."""
LOOKED_AT = 256
"""Frames behind the last valid commit, at most: few enough to cost 50 ms in the worst case."""

Sums = tuple[int, int]


class Frame(NamedTuple):
    """One page in the log."""

    commits: bool
    """The last of its transaction."""
    salt: bytes
    sums: Sums
    content: bytes
    """What the checksum is of."""


class Log:
    """A log as it lies on the disk."""

    def __init__(self, file: BinaryIO, page_size: int) -> None:
        self._file, self._page_size = file, page_size
        # Others may cut it after whoever looked at its length; what is missing is then taken as zero.
        self.header = file.read(HEADER).ljust(HEADER, b"\0")
        (magic,) = struct.unpack(">I", self.header[:4])
        self._words = ">" if magic & 1 else "<"
        self.is_sound = magic & ~1 == MAGIC and self.follows((0, 0), self.header[:24], _sums(self.header[24:]))
        self.salt = self.header[16:24]

    def frame(self, number: int) -> Frame | None:
        """The frame, from 1; None: the log has no more, or that is none."""
        size = FRAME + self._page_size
        self._file.seek(HEADER + (number - 1) * size)
        read = self._file.read(size)
        if len(read) < size:
            return None
        return Frame(read[4:8] != bytes(4), read[8:16], _sums(read[16:24]), read[:8] + read[FRAME:])

    def follows(self, before: Sums, content: bytes, sums: Sums) -> bool:
        """Whether that is the checksum of such content behind that one."""
        return sums_of(self._words, before, content) == sums


def refuse_emptied(path: Path) -> None:
    """StoreCorrupt for a log beside an empty database: SQLite deletes such a log, and all that was committed in it."""
    with suppress(FileNotFoundError):
        if path.stat().st_size == 0 and log_of(path).stat().st_size > HEADER:
            raise StoreCorrupt(
                f"{path} is empty, and {log_of(path).name} beside it is not: somebody emptied the database. Restore it"
                " from a backup; to begin anew, move both away"
            )


def check(database: Any, path: Path) -> None:
    """StoreCorrupt if committed transactions lie behind a damaged place in the log, so that they are lost. database:
    open, by a SQLite that can count frames; else it is not looked."""
    if not isinstance(database, apsw.Connection) or not hasattr(apsw, "SQLITE_CHECKPOINT_NOOP"):
        return
    page_size = database.pragma("page_size")
    try:
        with log_of(path).open("rb", buffering=0) as file:
            header = _header(file)
            valid = _valid(database)
            # Where others write meanwhile, what was read is in part from before, and in part from after.
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
        # Else whoever closes the database last merges what is valid into it, and deletes the rest.
        database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        raise


def refuse(told: str, written: float) -> None:
    """StoreCorrupt that says so, if the files were last written since this machine started; else it is only logged."""
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
        commits = (commits if follows else 0) + (frame.commits and follows)
        if commits == 2:
            return True
    return False


def _header(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read(HEADER)


def _valid(database: apsw.Connection) -> int:
    """How many frames SQLite reads, by now."""
    return max(database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0], 0)


def _behind(log: Log, valid: int) -> Iterator[tuple[bool, Frame]]:
    """The frames behind a break, and whether each follows from the one before. What follows from the last valid one is
    being written just now, or was never committed."""
    before = log.frame(valid) if valid else None
    sums = before.sums if before is not None else _sums(log.header[24:32])
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
    """Whether that was since this machine started; False where that is not known."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/stat").read_text().splitlines()
        started = int(next(line for line in lines if line.startswith("btime ")).split()[1])
        return started < moment <= time.time() + 1
    return False


def log_of(path: Path) -> Path:
    """Where the log of a database is."""
    return path.with_name(f"{path.name}-wal")


def sums_of(words: str, before: Sums, content: bytes) -> Sums:
    """The checksum of such content behind that one. words: their byte order, as `struct` has it."""
    one, two = before
    each = iter(struct.unpack(f"{words}{len(content) // 4}I", content))
    for first, second in zip(each, each, strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def _sums(eight: bytes) -> Sums:
    one, two = struct.unpack(">II", eight)
    return one, two
