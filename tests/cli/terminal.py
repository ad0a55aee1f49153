"""A terminal in which `tarry top` really runs: what it writes is drawn, and read from the screen."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from typing import Any

import pyte

from tests.cli.forked import TarryProcess
from tests.cli.project import Project

LIMIT = 60.0
UP, DOWN, ESCAPE = "\x1b[A", "\x1b[B", "\x1b"


class Terminal:
    """Everything waits for what is to be seen, for 30 s at most."""

    def __init__(self, project: Project, *words: str, width: int = 80, height: int = 24, **environ: str) -> None:
        self.width, self.height = width, height
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        """All that it wrote."""
        self._ours, self._theirs = pty.openpty()
        self._size()
        self.modes_before = self.modes()
        self.process = TarryProcess(
            ["top", *words],
            cwd=project.directory,
            env=_environ(project) | environ,
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
        )

    def modes(self) -> list[Any]:
        """Echo, line mode and all else that a program may change in a terminal."""
        return termios.tcgetattr(self._theirs)

    def lines(self) -> list[str]:
        """What stands on the screen now."""
        while select.select([self._ours], [], [], 0.02)[0]:
            more = os.read(self._ours, 65536)
            self.written += more
            self._stream.feed(more)
        return [line.rstrip() for line in self.screen.display]

    def line(self, *texts: str) -> str:
        """The first line that has all of these in it, waited for."""
        end = time.monotonic() + LIMIT
        while True:
            lines = self.lines()
            for line in lines:
                if all(text in line for text in texts):
                    return line
            assert time.monotonic() < end, "\n".join([f"no line with {texts}:", *lines, f"{self.process.poll()}"])

    def without(self, text: str) -> None:
        """Waits until no line has it any more."""
        end = time.monotonic() + LIMIT
        while any(text in line for line in self.lines()):
            assert time.monotonic() < end, "\n".join([f"still {text!r}:", *self.lines()])

    def press(self, *keys: str) -> None:
        for key in keys:
            os.write(self._ours, key.encode())

    def resize(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.lines()
        self.screen.resize(height, width)
        self._size()
        self.process.send_signal(signal.SIGWINCH)

    def ended(self) -> int:
        """Its exit status, once it has ended; what it wrote last is drawn too."""
        end = time.monotonic() + LIMIT
        while self.process.poll() is None:
            self.lines()
            assert time.monotonic() < end, "\n".join(["it goes on:", *self.lines()])
        self.lines()
        return self.process.wait()

    def vanish(self) -> None:
        """As when its window is closed."""
        for fd in (self._ours, self._theirs):
            os.close(fd)
        self._ours = self._theirs = -1

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        if self._ours >= 0:
            self.vanish()

    def _size(self) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", self.height, self.width, 0, 0))


def _environ(project: Project) -> dict[str, str]:
    """Neither this terminal's nor this test's own size."""
    mine = {name: text for name, text in project.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    return mine | {"TERM": "xterm-256color"}
