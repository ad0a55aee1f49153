"""Notices that the file of an open store was moved, replaced, cut or written over, and that it is damaged.

SQLite writes to the file only while it merges the log into it, and the index of the log says when that is. So a file
that has another length or another time of writing, though nothing was merged, was written by another program, as by
`cp backup tarry.db`. What is committed from then on may be lost: the log belongs to the file that is gone.
"""

import logging
import os
from pathlib import Path
from typing import NamedTuple

from tarry import errors
from tarry.platform import read_at
from tarry.store.sqlite.link import wal_index
from tarry.store.sqlite.link.damage_mark import REPLACED, DamageMark

log = logging.getLogger("tarry.store")

_MAGIC = b"SQLite format 3\0"


class _Sample(NamedTuple):
    """The file at one moment."""

    written: tuple[int, int]
    """When it was last written, in nanoseconds, and its length in bytes."""
    merges: wal_index.Merges | None
    """The merges until then; None if one may have been under way."""


class FileGuard:
    """Watches the file of one open store. path: of the database, absolute."""

    def __init__(self, path: Path) -> None:
        self._path, self._name = path, str(path)
        # SQLite follows links too: the log and the index are beside the file itself.
        self._real = Path(os.path.realpath(path))
        self.mark = DamageMark(self._real)
        opened = os.stat(path)
        self._opened = opened.st_ino, opened.st_dev
        self._index = self._index_inode()
        self._sample = self._take_sample()
        self._replaced = ""
        """What this process itself has found of a file that was replaced."""

    def check(self) -> None:
        """StoreUnavailable if the file was moved or deleted; StoreCorrupt if it was replaced or written over."""
        self.check_file()
        if self.mark.is_set():
            self._refuse(self.mark.read(), REPLACED)

    def check_insert(self) -> None:
        """As `check`; also StoreCorrupt if any process has found the file damaged. Nothing is stored then."""
        try:
            self.check_file()
            if self.mark.is_set():
                self._refuse(self.mark.read())
        except errors.StoreError as error:
            error.stored = False
            raise

    def check_file(self) -> None:
        """As `check`, without a look at what other processes have found."""
        if self._replaced:
            raise self._refused(self._replaced)
        try:
            found = os.stat(self._name)
        except OSError:
            found = None
        if found is None or (found.st_ino, found.st_dev) != self._opened:
            raise self._moved(found)
        sample = self._sample
        # A sample taken during a merge proves nothing, so it is taken again.
        if sample.merges is None or (found.st_mtime_ns, found.st_size) != sample.written:
            self._compare()

    def tell(self, error: BaseException) -> None:
        """Tells all processes that SQLite found the file damaged."""
        self.mark.set(str(error))

    def _moved(self, found: os.stat_result | None) -> errors.StoreError:
        if found is None or self._index_inode() != self._index:
            # SQLite would go on in the deleted file, where nobody ever finds the jobs.
            return errors.StoreUnavailable(
                f"{self._path} was moved or deleted while in use: put it back, or restart all that use it"
            )
        # Who opens the new file takes the log of the old one for its own.
        return self._replace("another file was put in its place, beside the log of the old one")

    def _compare(self) -> None:
        # In this order, so that `now` is the later one also where several threads compare.
        before = self._sample
        now = self._take_sample()
        if self._is_foreign(before, now):
            raise self._replace(f"written over by another program, it has {now.written[1]:,} bytes now")
        self._sample = now

    def _is_foreign(self, before: _Sample, now: _Sample) -> bool:
        if before.written == now.written:
            return False
        if not now.written[1] or self._header() != _MAGIC:
            return True
        return before.merges is not None and before.merges == now.merges

    def _replace(self, how: str) -> errors.StoreCorrupt:
        self._replaced = f"{REPLACED}{how}"
        self.mark.set(self._replaced)
        log.error("%s: %s", self._path, how)
        return self._refused(self._replaced)

    def _refuse(self, found: str, beginning: str = "") -> None:
        # It may have been cleared since it was seen.
        if found and found.startswith(beginning):
            raise self._refused(found)

    def _refused(self, found: str) -> errors.StoreCorrupt:
        if not found.startswith(REPLACED):
            return errors.StoreCorrupt(
                f"{self._path} is damaged, so no job is taken: {found}. `tarry check` looks whether it is, and says"
                " what to do"
            )
        return errors.StoreCorrupt(
            f"{self._path} was replaced while in use, so nothing more is stored: {found.removeprefix(REPLACED)}. Stop"
            " all that use it; then `tarry store repair` saves what can be read"
        )

    def _take_sample(self) -> _Sample:
        before = wal_index.merges(self._real)
        found = os.stat(self._path)
        merges = wal_index.merges(self._real)
        is_firm = merges is not None and merges == before and merges.begun == merges.done
        return _Sample((found.st_mtime_ns, found.st_size), merges if is_firm else None)

    def _header(self) -> bytes:
        # By a descriptor that stays open: closing one ends all locks of this process on the file.
        try:
            return read_at(wal_index.kept_descriptor(self._path), len(_MAGIC), 0)
        except OSError:
            return b""

    def _index_inode(self) -> int:
        try:
            return os.stat(f"{self._real}-shm").st_ino
        except OSError:
            return 0
