"""Where alerts that are not over are remembered: those of the store in a cell of it, those of a host in a file."""

import contextlib
import logging
import os
from pathlib import Path

from tarry import files
from tarry.store.base import Store
from tarry.store.shared.partly import partly

log = logging.getLogger("tarry.alerts")

CELL = "alert:open"


class CellMemory:
    """For all hosts; one of them writes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._was: bytes | None = None

    def read(self) -> bytes | None:
        """StoreError, also where it may lie in a part of the store that is away."""
        found, away = partly(lambda: self._store.cells(CELL))
        if away and CELL not in found:
            raise away
        self._was = found.get(CELL)
        return self._was

    def write(self, content: bytes | None) -> bool:
        """StoreError; False: another host wrote since we read."""
        if not self._store.write(CELL, content, self._was):
            return False
        self._was = content
        return True


class FileMemory:
    """For one host. Where it cannot be written, it is said once, and a restart forgets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._was: bytes | None = None
        self._told = False

    def read(self) -> bytes | None:
        """None also where it cannot be read."""
        self._was = self._there()
        return self._was

    def write(self, content: bytes | None) -> bool:
        """Whole or not at all; False: the keeper that ran before this one wrote since we read, as at a reload."""
        if self._there() != self._was:
            return False
        try:
            self._put(content)
            self._was = content
        except OSError as error:
            if not self._told:
                self._told = True
                log.error("%s: %s: what is alerted now is told again after a restart", self._path, error.strerror)
        return True

    def _there(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except OSError:
            return None

    def _put(self, content: bytes | None) -> None:
        if content is None:
            self._path.unlink(missing_ok=True)
            return
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            with os.fdopen(files.opened(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, files.OURS), "wb") as file:
                file.write(content)
            beside.replace(self._path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
