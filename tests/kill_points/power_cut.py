"""A disk whose power is cut: of what was written since the last sync of a file, some is found afterwards.

A part of SQLite's way to its files, in Python (a VFS of apsw). What is lost, and what is torn, is drawn: by sectors,
each of which is written whole or not at all. The names of files are held to be kept.
"""

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512
_Write = tuple[int, bytes | None]
"""Where, and what; None: the file was cut there."""


class _Image:
    """A file as it is on the disk: what was synced, and what was written since."""

    def __init__(self, path: Path) -> None:
        self.synced = bytearray(path.read_bytes() if path.exists() else b"")
        self.pending: list[_Write] = []

    def sync(self) -> None:
        for write in self.pending:
            _apply(self.synced, *write)
        self.pending.clear()

    def after_cut(self, dice: random.Random) -> bytes:
        """What is found once power is back."""
        # None, all, or a part of what was written: each of these is a disk of its own.
        chance = dice.choice((0.0, 0.5, 0.9, 1.0))
        found = bytearray(self.synced)
        for write in self.pending:
            for at, data in _sectors(write):
                if dice.random() < chance:
                    _apply(found, at, data)
        return bytes(found)


def _sectors(write: _Write) -> Iterator[_Write]:
    at, data = write
    if data is None:
        yield write
        return
    # Up to the next bound between two sectors first.
    first = SECTOR - at % SECTOR
    for start, end in zip([0, *range(first, len(data), SECTOR)], [*range(first, len(data), SECTOR), len(data)]):  # noqa: B905
        yield at + start, data[start:end]


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        del content[at:]
        return
    content.extend(bytes(max(0, at - len(content))))
    content[at : at + len(data)] = data


class PowerCut(apsw.VFS):
    """The files of this process, until the call number `at` (0: never), before which power is cut: then they are what
    would be found, and the process is killed. calls: how many there were: writes, syncs, and cuts of files."""

    def __init__(self, at: int, dice: random.Random) -> None:
        usual = str(apsw.vfs_details()[0]["zName"])
        super().__init__("power", usual, makedefault=True)
        self._usual = usual
        self.calls = 0
        self._at, self._dice = at, dice
        self._images: dict[str, _Image] = {}
        # Of several threads: what one writes while power is cut is not written.
        self._lock = threading.RLock()

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - as all here: SQLite's names
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        with self._lock:
            if path:
                self._image(path)
        return _File(self, self._usual, name, flags, path)

    def xDelete(self, name: str, sync: bool) -> None:  # noqa: N802
        with self._lock:
            self._images.pop(name, None)
            super().xDelete(name, sync)

    def note(self, path: str | None, write: _Write | None) -> None:
        """Before each call on a file; write None: a sync."""
        with self._lock:
            self.calls += 1
            if self.calls == self._at:
                self._cut()
            if path is None:
                return
            if write is None:
                self._image(path).sync()
            else:
                self._image(path).pending.append(write)

    def _image(self, path: str) -> _Image:
        if path not in self._images:
            self._images[path] = _Image(Path(path))
        return self._images[path]

    def _cut(self) -> None:
        for path, image in self._images.items():
            Path(path).write_bytes(image.after_cut(self._dice))
            # From before the machine started, as files are after a power cut.
            os.utime(path, (1, 1))
            # Memory that processes share.
            Path(f"{path}-shm").unlink(missing_ok=True)
        os.kill(os.getpid(), signal.SIGKILL)


class _File(apsw.VFSFile):
    def __init__(self, disk: PowerCut, usual: str, name: Any, flags: list[int], path: str | None) -> None:
        super().__init__(usual, name, flags)
        self._disk, self._path = disk, path

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._disk.note(self._path, (offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._disk.note(self._path, (size, None))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.note(self._path, None)
        super().xSync(flags)
