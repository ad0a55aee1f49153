"""Storage for the state of alarms: a cell of the store for shared ones, a file for those of one host."""

import contextlib
import logging
import os
from pathlib import Path

from tarry import files
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import partial_result

log = logging.getLogger("tarry.alerts")

CELL = "alert:open"


class CellStorage:
    """Shared by all hosts; one of them writes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last_read: bytes | None = None

    def read(self) -> bytes | None:
        """The stored content. StoreError, also if it may be on a shard that is away."""
        found, away = partial_result(lambda: self._store.kv_list(CELL))
        if away and CELL not in found:
            raise away
        self._last_read = found.get(CELL)
        return self._last_read

    def write(self, content: bytes | None) -> bool:
        """Replaces the content. False: another host wrote since the last read. StoreError."""
        if not self._store.kv_cas(CELL, content, self._last_read):
            return False
        self._last_read = content
        return True


class FileStorage:
    """A file of one host. If it cannot be written, that is logged once, and a restart loses the state."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_read: bytes | None = None
        self._logged = False

    def read(self) -> bytes | None:
        """The content; None if there is none or it cannot be read."""
        self._last_read = self._read_file()
        return self._last_read

    def write(self, content: bytes | None) -> bool:
        """Replaces the file atomically. False: another keeper wrote since the last read, as during a reload."""
        if self._read_file() != self._last_read:
            return False
        try:
            self._replace_file(content)
            self._last_read = content
        except OSError as error:
            # The state is still in this process, so the alerts go on.
            if not self._logged:
                self._logged = True
                log.error("%s: %s: open alerts are sent again after a restart", self._path, error.strerror)
        return True

    def _read_file(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except OSError:
            return None

    def _replace_file(self, content: bytes | None) -> None:
        if content is None:
            self._path.unlink(missing_ok=True)
            return
        # With the pid: during a reload two keepers may write.
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            with os.fdopen(
                files.open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, files.OURS), "wb"
            ) as file:
                file.write(content)
            temporary.replace(self._path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
