"""Where the board of a database on a server is: in a directory for temporary files, of this user alone."""

import contextlib
import hashlib
import os
import secrets
import stat
import tempfile
from pathlib import Path

from tarry.platform import user_id


class BoardDirectory:
    """The directory of the board that the processes of this user on this host share, for one database on a server.

    database: what tells it from all others.
    """

    def __init__(self, database: str) -> None:
        digest = hashlib.sha256(database.encode()).hexdigest()[:16]
        self.path = Path(tempfile.gettempdir()) / f"tarry-{user_id()}-{digest}"

    def create(self) -> bool:
        """Makes the directory. False if another user has one of that name, or none can be made: there is no board."""
        with contextlib.suppress(OSError):
            self.path.mkdir(mode=0o700, exist_ok=True)
            # lstat: in a common directory another user could have put a link of that name there.
            found = os.lstat(self.path)
            return stat.S_ISDIR(found.st_mode) and found.st_uid == user_id()
        return False

    def name(self, create: bool = False) -> str | None:
        """The name by which other hosts know the board; None: no process here has ever slept."""
        file = self.path / "name"
        with contextlib.suppress(OSError):
            if create and not file.exists():
                mine = self.path / f"name.{os.getpid()}.{secrets.token_hex(4)}"
                mine.write_text(secrets.token_hex(16))
                # A link appears with its whole content, and only the first process can make it: all read one name.
                with contextlib.suppress(FileExistsError):
                    os.link(mine, file)
                mine.unlink()
            return file.read_text()
        return None

    def touch(self) -> None:
        """Makes the files look used."""
        # Hosts remove old files from the directory for temporary ones.
        with contextlib.suppress(OSError):
            for file in self.path.iterdir():
                os.utime(file)
