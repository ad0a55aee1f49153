"""The new master's side of an upgrade: it says that it serves, and waits until the old one has made room."""

import contextlib
import os
import socket
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import msgspec

from tarry.runtime.board.scoreboard import DRAFT
from tarry.runtime.upgrade.relaunch import VARIABLE, Inherited

SERVING_WORD, FAILED_WORD, GO_WORD = b"serving", b"failed:", b"go"
"""What the two masters say to each other."""
MOST_TEXT = 4000
"""Bytes of it."""
# Seconds for the old master to answer: its loop sleeps for half a second at most.
_ANSWER_LIMIT = 10.0


class Successor:
    """The new master's side. For a master that takes nobody's place it does nothing."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Reads the variable, and removes it."""
        text = environ.pop(VARIABLE, "")
        inherited = msgspec.json.decode(text, type=Inherited) if text else None
        self.own_sockets = 0 if inherited is None else inherited.own
        self._socket: socket.socket | None = None
        if inherited is not None:
            os.set_inheritable(inherited.fd, False)
            self._socket = socket.socket(fileno=inherited.fd)
            self._socket.settimeout(_ANSWER_LIMIT)

    @property
    def is_waiting(self) -> bool:
        """Whether another master is to make room."""
        return self._socket is not None

    def place(self, path: Path) -> Path:
        """Where that file is until the old master has made room."""
        return path.with_name(path.name + DRAFT) if self.is_waiting else path

    def take_over(self) -> bool:
        """Tells the old master that this one serves. False: it does not make room: this one took too long, or it is
        dead. Waits for it, up to 10 s."""
        if self._socket is None:
            return True
        try:
            self._socket.send(SERVING_WORD)
            return self._socket.recv(MOST_TEXT) == GO_WORD
        except OSError:
            return False
        finally:
            self.close()

    def report_failure(self, text: str) -> None:
        """Tells the old master why this one cannot serve."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(FAILED_WORD + text.encode("utf-8", "replace")[: MOST_TEXT - len(FAILED_WORD)])
            self.close()

    def close(self) -> None:
        """Also called in forked children."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def is_successor(environ: MutableMapping[str, Any] = os.environ) -> bool:
    """Whether this process was started as a new master."""
    return VARIABLE in environ
