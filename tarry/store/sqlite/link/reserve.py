"""Room set aside on the disk, so that running jobs can still be settled when the disk is full.

A file beside the database holds the room. A worker that finds the disk full empties the file and goes on in that room.
While the file is empty, producers are refused. Jobs are taken again once the disk has space for two such files, or the
database has as much as one free inside, because jobs were forgotten.
"""

import contextlib
import os
import shutil
from pathlib import Path

from tarry import files, platform
from tarry.store.rules.base import Diagnostic

ROOM = 16 * 2**20
"""Bytes, on a disk that has as much to spare."""
LEAST = 2 * 2**20
"""Bytes, on a small disk. With less than twice as much free, producers are refused at once."""


def most_logged(directory: Path) -> int:
    """The bytes that the write-ahead log may grow to, in a database there, before SQLite merges it into the file."""
    disk = shutil.disk_usage(directory)
    # When the disk is full, the log is merged in the room set aside: half of that, so that outcomes have the rest.
    return min(wanted_room(disk.total), max(LEAST, disk.free // 2)) // 2


def wanted_room(total: int) -> int:
    """How many bytes are to be set aside on a disk of so many: an eighth of a small one."""
    return min(ROOM, max(LEAST, total // 8))


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
        """Sets the room aside if it is not set aside yet and the disk has enough; on a disk that has next to nothing,
        refuses producers. spare: free bytes in the database."""
        # Errors are ignored: the reserve is a help, and a store without it works all the same.
        with contextlib.suppress(OSError):
            disk = shutil.disk_usage(os.path.dirname(self._path))
            free, wanted = disk.free, wanted_room(disk.total)
            if not os.path.exists(self._path):
                self._begin(free, wanted, spare)
            elif self.spent and free > 2 * wanted:
                self._fill(wanted)
            elif self.spent and spare > wanted:
                # Forgotten jobs left as much room in the database: removing the empty file lets producers in again.
                os.unlink(self._path)

    def _begin(self, free: int, wanted: int, spare: int) -> None:
        if free >= 2 * LEAST:
            self._fill(min(wanted, free // 2))
        elif spare <= wanted:
            # What is left is the room itself.
            os.close(files.open_private(self._path, os.O_WRONLY | os.O_CREAT))

    def describe(self) -> Diagnostic:
        """For `tarry check`: how large it is."""
        try:
            size = os.stat(self._path).st_size
        except OSError:
            return Diagnostic("reserve", "none yet: the first worker sets it aside")
        if size:
            return Diagnostic("reserve", f"{size / 2**20:.0f} MB, to settle running jobs when the disk is full")
        return Diagnostic("reserve", "in use, so new jobs are refused", "the disk was full: free some space")

    def spend(self) -> bool:
        """Frees the room for a caller that has to write now; False if there was none."""
        if self.spent or not os.path.exists(self._path):
            return False
        os.truncate(self._path, 0)
        return True

    def _fill(self, room: int) -> None:
        # Filled under another name: the file is empty for a moment, and an empty reserve says that the disk is full.
        # Two processes that do this at once fill the same file, and one of them finds it gone.
        filling = f"{self._path}-new"
        fd = files.open_private(filling, os.O_RDWR | os.O_CREAT)
        try:
            # Real blocks: a file with a hole in it would hold no room.
            platform.allocate(fd, room)
            os.replace(filling, self._path)
        except OSError:
            # A half filled file would only take space from a disk that has too little.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(filling)
            raise
        finally:
            os.close(fd)
