"""Room set aside on the disk, so that when it is full what runs can still be settled.

A file beside the database holds the room. A worker that finds the disk full empties the file and goes on in the room
that this gives; while it is empty producers are refused, or their jobs would eat it up. They are taken again once
the disk has space for it anew, or the database has as much inside, where jobs were forgotten.
"""

import contextlib
import os
from pathlib import Path

from tarry import files

ROOM = 16 * 2**20
"""Bytes: more than the write-ahead log grows to before it is written back and used again."""


class Reserve:
    """The room beside one database file."""

    def __init__(self, database: Path) -> None:
        self._path = f"{database}-reserve"

    @property
    def spent(self) -> bool:
        """The disk was full, and is not known to have space again."""
        try:
            return os.stat(self._path).st_size == 0
        except OSError:
            return False

    def keep(self, spare: int = 0) -> None:
        """Sets the room aside if it is not, and if the disk has enough for that. spare: free bytes in the database."""
        with contextlib.suppress(OSError):
            if os.path.exists(self._path) and not self.spent:
                return
            disk = os.statvfs(os.path.dirname(self._path))
            if disk.f_bavail * disk.f_frsize > 2 * ROOM:
                self._fill()
            elif spare > ROOM and self.spent:
                os.unlink(self._path)

    def spend(self) -> bool:
        """Gives the room to whoever has to write now; False if there was none to give."""
        if self.spent or not os.path.exists(self._path):
            return False
        os.truncate(self._path, 0)
        return True

    def _fill(self) -> None:
        # Filled under another name: for a moment it is empty, and an empty reserve says that the disk is full. Two who
        # fill at once fill the same file, and one of them finds it gone.
        filling = f"{self._path}-new"
        fd = files.opened(filling, os.O_RDWR | os.O_CREAT)
        try:
            # Real blocks: a file with a hole in it would hold nothing.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, ROOM)
            else:
                os.write(fd, bytes(ROOM))
            os.replace(filling, self._path)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(filling)
            raise
        finally:
            os.close(fd)
