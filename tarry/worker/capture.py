"""Keeps what tasks print and log with their jobs, while a worker runs here. The output is also written as before.

Not kept: the output of threads that a task starts, and output that does not go through sys.stdout, such as that of a
subprocess, of C code or of `sys.stdout.buffer`.
"""

import contextlib
import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from tarry.platform import at_fork
from tarry.tasks.output import Tail
from tarry.tasks.running import Batch, Running, current

# The output belongs to all jobs of a call, and a copy for each of ten thousand would fill the store.
BATCH_SHARE = 16
"""What a batch task prints is kept with the first jobs of the call, at most so many."""

_FORMATTER = logging.Formatter()


class CapturingStream:
    """Replaces a stream; passes on all but `write` and `writelines`."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.is_active = True

    def write(self, text: str) -> int:
        """Writes to the stream, and keeps the text if a task writes it."""
        written = self.stream.write(text)
        running = current.get()
        # What a log handler writes has been kept already, as a log record.
        if running is not None and self.is_active and sys._getframe(1).f_globals.get("__name__") != "logging":
            keep(running, text)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes each line as `write` does."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class CapturingRecordFactory:
    """Replaces the factory of log records."""

    # A handler would miss the records of loggers that do not propagate.

    def __init__(self) -> None:
        self.before = logging.getLogRecordFactory()
        self.is_active = True

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        """Creates the record, and keeps a line of it if a task logs it."""
        record: logging.LogRecord = self.before(*args, **kwargs)
        running = current.get()
        if running is not None and self.is_active and record.name:
            keep(running, _line(record), whole=True)
        return record


class _Capture:
    """Begins with the first worker, ends with the last one."""

    def __init__(self) -> None:
        self._wanted = 0
        self._lock = threading.Lock()
        self._streams: dict[str, CapturingStream] = {}
        self._records: CapturingRecordFactory | None = None

    def begin(self) -> None:
        with self._lock:
            self._wanted += 1
            if self._wanted == 1:
                self._install()

    def end(self) -> None:
        with self._lock:
            self._wanted -= 1
            if self._wanted == 0:
                self._uninstall()

    def _install(self) -> None:
        for name in ("stdout", "stderr"):
            if (stream := getattr(sys, name)) is not None:
                self._streams[name] = CapturingStream(stream)
                setattr(sys, name, self._streams[name])
        self._records = CapturingRecordFactory()
        logging.setLogRecordFactory(self._records)

    def _uninstall(self) -> None:
        # If other code has replaced or wrapped our objects, they stay and do nothing.
        self._deactivate()
        for name, watched in self._streams.items():
            if getattr(sys, name) is watched:
                setattr(sys, name, watched.stream)
        if self._records is not None and logging.getLogRecordFactory() is self._records:
            logging.setLogRecordFactory(self._records.before)

    def _deactivate(self) -> None:
        for watched in (*self._streams.values(), self._records):
            if watched is not None:
                watched.is_active = False

    def forget(self) -> None:
        """Called in a forked process: no worker runs there, so nothing is kept."""
        # A new lock: another thread of the parent may have held the old one, and that thread is not here.
        self._wanted, self._lock = 0, threading.Lock()
        self._uninstall()


_capture = _Capture()
at_fork(after_in_child=_capture.forget)


@contextlib.contextmanager
def capture_output(most: int) -> Iterator[None]:
    """Inside, what tasks print and log is kept with their jobs. most: bytes for each job; 0: keeps nothing."""
    if not most:
        yield
        return
    _capture.begin()
    try:
        yield
    finally:
        _capture.end()


def keep(running: Running, text: str, whole: bool = False) -> None:
    """Keeps a text with the job. whole: it is a whole line."""
    buffer = running.progress_buffer
    if buffer is None or not buffer.keep_output:
        return
    tail = running.tail
    if tail is None:
        tail = running.tail = Tail(buffer.keep_output)
    if whole:
        tail.add_line(text)
    else:
        tail.add(text)
    if not isinstance(running, Batch):
        buffer.add(running)
        return
    for member in running.called[:BATCH_SHARE]:
        member.tail = tail
        buffer.add(member)


def _line(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:
        # The arguments do not fit the message. `logging` reports that itself; here the line is kept as it is.
        text = f"{record.msg} {record.args}"
    if record.exc_info:
        text += "\n" + _FORMATTER.formatException(record.exc_info)
    return f"{record.levelname} {record.name}: {text}"
