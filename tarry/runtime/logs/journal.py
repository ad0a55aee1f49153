"""Sends log lines to systemd's journal in its own protocol: a datagram of fields."""

import logging
import socket
from collections.abc import Iterator
from typing import Any

from tarry.runtime.logs.datagrams import DatagramHandler, truncate
from tarry.runtime.logs.formatting import encode, format_traceback, job_facts
from tarry.runtime.logs.syslog import severity

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
