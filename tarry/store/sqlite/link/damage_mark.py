"""The file beside a damaged database that tells all processes what one of them found."""

import contextlib
import os
import time
from pathlib import Path

from tarry import files

MOST = 1000
"""Characters that are kept of what was found."""
REPLACED = "replaced: "
"""Begins what was found where nothing may be written to the file any more, not even outcomes."""


class DamageMark:
    """Of the database at this path. While it is there, producers are refused."""

    def __init__(self, database: Path) -> None:
        self.path = f"{database}-damage"

    def is_set(self) -> bool:
        """Whether damage was found, and was not mended since."""
        return os.path.exists(self.path)

    def read(self) -> str:
        """When what was found; empty if there is no mark."""
        with contextlib.suppress(OSError), open(self.path, encoding="utf-8", errors="replace") as file:
            return file.read(MOST + 40).strip() or "found damaged"
        return ""

    def set(self, found: str) -> None:
        """Tells all processes. What the first one found stays. Without room or rights nothing is told."""
        with contextlib.suppress(OSError):
            descriptor = files.open_private(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(f"{found[:MOST]} ({time.strftime('%Y-%m-%d %H:%M:%S %z')})\n")

    def clear(self) -> None:
        """The database was mended, or is whole. OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
