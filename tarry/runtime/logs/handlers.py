"""Sets where log records go: the same for every process of a master.

Sends log lines to systemd's journal in its own protocol: a datagram of fields.

A log file that many processes write, and that may be moved, deleted or rotated meanwhile.
"""

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tarry import files
from tarry.errors import ConfigError
from tarry.model.values.log_target import LogTarget, log_target
from tarry.runtime.logs import syslog
from tarry.runtime.logs.datagrams import DatagramHandler, truncate
from tarry.runtime.logs.fallback import StderrFallback
from tarry.runtime.logs.formatting import JsonFormatter, TextFormatter, encode, format_traceback, job_facts
from tarry.runtime.logs.syslog import severity

FORMATS = ("text", "json")


def configure(target: str | Path, format: str = "text", level: str = "info") -> None:
    """Sends all records of this process and its children to "stderr", "syslog", "journal", a URL of one of these, or a
    file. ConfigError: the target cannot be used.

    A line is `2026-11-21T10:00:00.123Z INFO tarry.master[123] message job=...`, or a JSON object of the same facts.
    """
    if format not in FORMATS:
        raise ConfigError(f"log_format {format!r}: one of {', '.join(FORMATS)}")
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ConfigError(f"log_level {level!r}: one of debug, info, warning, error")
    # A Path is a file, even one with the name of another target.
    handler = _create_handler(LogTarget("file", str(target)) if isinstance(target, Path) else _parse_target(target))
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    # force: a second call replaces the handlers of the first.
    logging.basicConfig(handlers=[handler], level=number, force=True)


def reopen() -> None:
    """Checks the target again: after logrotate, or when a socket is back. The handlers find that by themselves, too."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogFile | DatagramHandler):
            handler.reopen()
    for action in _reopen_actions:
        action()


_reopen_actions: list[Callable[[], None]] = []


def on_reopen(action: Callable[[], None]) -> None:
    """Makes `reopen` call the action too: for other files that this process writes."""
    _reopen_actions.append(action)


def is_file_target(target: str) -> bool:
    """True: the target is a file; not stderr, syslog or the journal."""
    return _parse_target(target).kind == "file"


def _parse_target(target: str) -> LogTarget:
    try:
        return log_target(target)
    except ValueError as error:
        raise ConfigError(f'log {target!r}: {error}; "stderr", "syslog", "journal" or the path of a file') from None


def _create_handler(target: LogTarget) -> logging.Handler:
    match target.kind:
        case "stderr":
            return logging.StreamHandler(sys.stderr)
        case "journal":
            return journal_handler(target.path)
        case "syslog":
            return syslog.remote_handler(target.host, target.port) if target.host else syslog.local_handler(target.path)
    return _create_file_handler(Path(target.path))


def _create_file_handler(path: Path) -> logging.Handler:
    try:
        files.make_directory(path.parent)
        return LogFile(path)
    except OSError as error:
        raise ConfigError(f"log file {path} cannot be written ({error.strerror}): set master.log to another") from None


_MAX_VALUE = 65536  # Bytes of a value. More does not fit into a datagram.


class JournalHandler(DatagramHandler):
    """Each record has MESSAGE, PRIORITY, SYSLOG_IDENTIFIER=tarry, LOGGER, the place in the code, and for a job
    TARRY_JOB, TARRY_TASK, TARRY_QUEUE, TARRY_ATTEMPT, TARRY_WORKER. A traceback is part of the message."""

    def pack(self, record: logging.LogRecord) -> bytes:
        """The fields, one after another."""
        return b"".join(field(name, value) for name, value in self._fields(record))

    def _fields(self, record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
        traceback = format_traceback(self.formatter or logging.Formatter(), record)
        yield "MESSAGE", f"{record.getMessage()}\n{traceback}" if traceback else record.getMessage()
        yield "PRIORITY", severity(record.levelno)
        yield "SYSLOG_IDENTIFIER", "tarry"
        yield "LOGGER", record.name
        yield "THREAD_NAME", record.threadName
        yield "CODE_FILE", record.pathname
        yield "CODE_LINE", record.lineno
        yield "CODE_FUNC", record.funcName
        for name, value in job_facts(record).items():
            yield f"TARRY_{name.upper()}", value


def field(name: str, value: object) -> bytes:
    """NAME=value; before a value with a line break stands its length."""
    data = truncate(encode(str(value)), _MAX_VALUE)
    if b"\n" not in data:
        return name.encode() + b"=" + data + b"\n"
    return name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n"


def journal_handler(path: str) -> JournalHandler:
    """Sends to the journal's socket; the first line shows whether it is there."""
    return JournalHandler(socket.AF_UNIX, path, f"the journal ({path})")


_Identity = tuple[int, int]


class LogFile(logging.Handler):
    """Appends whole lines, each in one write, to whatever file has the path at that moment; OSError if none can.

    It checks the path before each line. While the file cannot be written, lines go to stderr. If stdout and stderr are
    the same file, they follow it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._fallback = StderrFallback(f"the file {path}")
        self._identity: _Identity = (0, 0)
        self._fd = -1
        self._open()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line. A record that cannot be formatted is reported on stderr, as by every handler."""
        try:
            # Apart from the write: a record that cannot be formatted is no failure of the file.
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        if self._fallback.is_due and self._try_write(line):
            return
        self._fallback.write(line)

    def reopen(self) -> None:
        """Checks now whether the path is another file."""
        with self.lock if self.lock is not None else contextlib.nullcontext():
            self._fallback.retry_now()
            try:
                self._follow_path()
            except OSError as error:
                self._fallback.record_failure(_why(error))

    def close(self) -> None:
        """Closes the file; no lines may follow."""
        self._close()
        super().close()

    def _try_write(self, line: str) -> bool:
        try:
            self._follow_path()
            self._write(line)
        except OSError as error:
            self._fallback.record_failure(_why(error))
            return False
        if note := self._fallback.record_success():
            with contextlib.suppress(OSError):
                self._write(self.format(_record(note)))
        return True

    def _write(self, line: str) -> None:
        # In one write if possible, so that lines of many processes do not mix.
        left = encode(line + "\n")
        while left:
            left = left[os.write(self._fd, left) :]

    def _follow_path(self) -> None:
        try:
            # Before each line, so that logrotate need not send a signal.
            there = os.stat(self._path)
        except FileNotFoundError:
            self._open()
            return
        if self._fd < 0 or (there.st_dev, there.st_ino) != self._identity:
            self._open()

    def _open(self) -> None:
        try:
            # If this fails, the old file is closed all the same: it is no longer the one at the path.
            fd = files.open_private(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError:
            self._close()
            raise
        self._close()
        before, self._identity, self._fd = self._identity, _identity(fd), fd
        # In a daemon, stdout and stderr are the log file. They must not stay with the rotated one.
        for output in (1, 2):
            with contextlib.suppress(OSError):
                if before != self._identity and _identity(output) == before:
                    os.dup2(fd, output)

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _identity(fd: int) -> _Identity:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _record(message: str) -> logging.LogRecord:
    return logging.LogRecord("tarry.log", logging.WARNING, __file__, 0, message, None, None)
