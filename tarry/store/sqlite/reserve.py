"""Room set aside on the disk, so that running jobs can still be settled when the disk is full.

A file beside the database holds the room. A worker that finds the disk full empties the file and goes on in that room.
While the file is empty, producers are refused. Jobs are taken again once the disk has space for the file again, or the
database has as much free inside, because jobs were forgotten.
"""

import contextlib
import os
from pathlib import Path

from tarry import files

# More than the write-ahead log grows to before SQLite writes it back and uses it again (`wal_autocheckpoint`).
ROOM = 16 * 2**20
"""Bytes."""


class Reserve:
    """The room beside one database file."""

    def __init__(self, database: Path) -> None:
        self._path = f"{database}-reserve"

    @property
    def spent(self) -> bool:
        """The disk was full, and is not known to have space again."""
        # The file tells all processes: producers must be refused, or their jobs would use up the room.
        try:
            return os.stat(self._path).st_size == 0
        except OSError:
            # Without a reserve nothing is known of the disk, so nobody is refused.
            return False

    def keep(self, spare: int = 0) -> None:
        """Sets the room aside if it is not set aside yet and the disk has enough. spare: free bytes in the database."""
        # Errors are ignored: the reserve is a help, and a store without it works all the same.
        with contextlib.suppress(OSError):
            if os.path.exists(self._path) and not self.spent:
                return
            disk = os.statvfs(os.path.dirname(self._path))
            if disk.f_bavail * disk.f_frsize > 2 * ROOM:
                self._fill()
            elif spare > ROOM and self.spent:
                # Forgotten jobs left as much room in the database: removing the empty file lets producers in again.
                os.unlink(self._path)

    def spend(self) -> bool:
        """Frees the room for a caller that has to write now; False if there was none."""
        if self.spent or not os.path.exists(self._path):
            return False
        os.truncate(self._path, 0)
        return True

    def _fill(self) -> None:
        # Filled under another name: the file is empty for a moment, and an empty reserve says that the disk is full.
        # Two processes that do this at once fill the same file, and one of them finds it gone.
        filling = f"{self._path}-new"
        fd = files.open_private(filling, os.O_RDWR | os.O_CREAT)
        try:
            # Real blocks: a file with a hole in it would hold no room.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, ROOM)
            else:
                os.write(fd, bytes(ROOM))
            os.replace(filling, self._path)
        except OSError:
            # A half filled file would only take space from a disk that has too little.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(filling)
            raise
        finally:
            os.close(fd)
