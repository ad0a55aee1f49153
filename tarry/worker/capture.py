"""Watches what tasks print and log, while workers work here: it goes where it went, and into the job's record, too.

What a thread prints that a task started by itself is nobody's, and what goes past sys.stdout (a subprocess, C code,
`sys.stdout.buffer`) is not seen.
"""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from tarry.tasks.output import Tail
from tarry.tasks.running import Batch, Running, current

BATCH_SHARE = 16
"""What a batch task prints is kept with so many jobs of the call, the first ones."""

_FORMATTER = logging.Formatter()


class Watched:
    """Stands in a stream's place; all but what is written through it is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.watches = True

    def write(self, text: str) -> int:
        """Writes to the stream, and keeps what a task writes."""
        written = self.stream.write(text)
        running = current.get()
        # What a log handler writes was kept already, when it was logged.
        if running is not None and self.watches and sys._getframe(1).f_globals.get("__name__") != "logging":
            keep(running, text)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        """Each as `write` does."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Records:
    """Makes log records in another's place: of every logger, whatever its handlers do with them."""

    def __init__(self) -> None:
        self.before = logging.getLogRecordFactory()
        self.watches = True

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        """A record as it would be, of which a task's job keeps a line."""
        record: logging.LogRecord = self.before(*args, **kwargs)
        running = current.get()
        if running is not None and self.watches and record.name:
            keep(running, _line(record), whole=True)
        return record


class _Watch:
    """Begun by the first who wants it, ended by the last."""

    def __init__(self) -> None:
        self._wanted = 0
        self._lock = threading.Lock()
        self._streams: dict[str, Watched] = {}
        self._records: Records | None = None

    def begin(self) -> None:
        with self._lock:
            self._wanted += 1
            if self._wanted == 1:
                self._put_in_place()

    def end(self) -> None:
        with self._lock:
            self._wanted -= 1
            if self._wanted == 0:
                self._take_away()

    def _put_in_place(self) -> None:
        for name in ("stdout", "stderr"):
            if (stream := getattr(sys, name)) is not None:
                self._streams[name] = Watched(stream)
                setattr(sys, name, self._streams[name])
        self._records = Records()
        logging.setLogRecordFactory(self._records)

    def _take_away(self) -> None:
        """Where somebody put something else in our place, or around us, we stay and do nothing."""
        self._look_away()
        for name, watched in self._streams.items():
            if getattr(sys, name) is watched:
                setattr(sys, name, watched.stream)
        if self._records is not None and logging.getLogRecordFactory() is self._records:
            logging.setLogRecordFactory(self._records.before)

    def _look_away(self) -> None:
        for watched in (*self._streams.values(), self._records):
            if watched is not None:
                watched.watches = False

    def forget(self) -> None:
        """In a forked process no worker works, unless it begins one: what a task does there is not kept."""
        self._wanted, self._lock = 0, threading.Lock()
        self._take_away()


_watch = _Watch()
os.register_at_fork(after_in_child=_watch.forget)


@contextlib.contextmanager
def watched(most: int) -> Iterator[None]:
    """Within, what tasks print and log is kept with their jobs. most: bytes for each; 0: nothing is."""
    if not most:
        yield
        return
    _watch.begin()
    try:
        yield
    finally:
        _watch.end()


def keep(running: Running, text: str, whole: bool = False) -> None:
    """Keeps text, or a whole line, with the job."""
    marks = running.marks
    if marks is None or not marks.keep_output:
        return
    tail = running.tail
    if tail is None:
        tail = running.tail = Tail(marks.keep_output)
    if whole:
        tail.line(text)
    else:
        tail.add(text)
    if not isinstance(running, Batch):
        marks.tell(running)
        return
    for member in running.on[:BATCH_SHARE]:
        member.tail = tail
        marks.tell(member)


def _line(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:
        text = f"{record.msg} {record.args}"
    if record.exc_info:
        text += "\n" + _FORMATTER.formatException(record.exc_info)
    return f"{record.levelname} {record.name}: {text}"
