"""Writes the figures to a file from time to time: for node_exporter's textfile collector."""

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from tarry import files

log = logging.getLogger("tarry.metrics")

_ENDS_WITHIN = 2.0


class Textfile:
    """Writes in a thread of its own until it is closed."""

    def __init__(self, path: Path, every: float, text: Callable[[], bytes]) -> None:
        """every: seconds."""
        self._path, self._every, self._text = path, every, text
        self._ends = threading.Event()
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="tarry-textfile", daemon=True)

    def start(self) -> None:
        """Writes now, and again and again."""
        self._thread.start()

    def close(self, removes: bool) -> None:
        """Writes no more. removes: whether the file goes: nobody else writes it from now on, and what is in it would
        look as if it were true."""
        self._ends.set()
        self._thread.join(_ENDS_WITHIN)
        if removes:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _run(self) -> None:
        while True:
            try:
                write_whole(self._path, self._text())
                self._failure = ""
            except OSError as error:
                self._note_failure(f"{error.strerror or error}: let tarry write there, or set metrics.textfile")
            except Exception:
                log.exception("%s cannot be written", self._path)
            if self._ends.wait(self._every):
                return

    def _note_failure(self, failure: str) -> None:
        # Once: it would come back every few seconds.
        if failure != self._failure:
            self._failure = failure
            log.error("%s cannot be written: %s", self._path, failure)


def write_whole(path: Path, text: bytes) -> None:
    """Writes a file so that a reader sees all of it, or the one before; readable by all. OSError."""
    # node_exporter is another user, and a daemon's umask would keep it out. It reads no name that begins with a dot.
    files.replace(path, text, 0o644)
