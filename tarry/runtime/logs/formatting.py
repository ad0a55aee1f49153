"""How a log line looks, and the facts of its job."""

import logging
import socket
from collections.abc import Callable, Mapping
from time import gmtime, strftime
from types import MappingProxyType
from typing import Any

import msgspec

from tarry.model.checks.texts import cut
from tarry.terminal import escape_control, escape_control_json

MOST_TRACEBACK = 65_536
"""Characters of a traceback in a line of the log."""
LogFacts = Mapping[str, Any]
"""What is known of the job: job, task, queue, attempt, worker."""


class _FactSources:
    """One for each process; set once, before threads begin."""

    now: Callable[[], LogFacts | None] = staticmethod(lambda: None)
    always: LogFacts = MappingProxyType({})


def set_job_facts(now: Callable[[], LogFacts | None], **always: Any) -> None:
    """From now on each log line of this process carries the facts that `now` returns for the job of the current thread
    or coroutine (None: no job), and `always`. A line with `extra={"tarry": {...}}` has its own facts."""
    _FactSources.now, _FactSources.always = staticmethod(now), always


def job_facts(record: logging.LogRecord) -> dict[str, Any]:
    """The facts of the job that the line is about; empty: it is about no job."""
    own = getattr(record, "tarry", None)
    facts = own if isinstance(own, Mapping) else _FactSources.now()
    return {**facts, **_FactSources.always} if facts else {}


def one_line(text: str) -> str:
    """Escapes line breaks."""
    # A text from outside could forge a log line with them.
    return text.replace("\n", "\\n").replace("\r", "\\r")


def format_traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback and stack of the record, cut; empty: it has none."""
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    if record.stack_info:
        parts.append(record.stack_info)
    return cut("\n".join(parts), MOST_TRACEBACK)


def format_time(record: logging.LogRecord) -> str:
    """The time of the record: RFC 3339, UTC, to the millisecond."""
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(record.created)) + f".{int(record.msecs):03}Z"


def encode(text: str) -> bytes:
    """As UTF-8. Half a surrogate pair, as in a badly decoded file name, is escaped."""
    return text.encode("utf-8", "backslashreplace")


class TextFormatter(logging.Formatter):
    """A line for people; a traceback follows on its own lines."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in the message; then the job's facts as name=value."""
        line = (
            f"{format_time(record)} {record.levelname} {record.name}[{record.process}] {one_line(record.getMessage())}"
        )
        line += "".join(f" {name}={_quote(value)}" for name, value in job_facts(record).items())
        # Tasks may log characters that a terminal acts on.
        traceback = escape_control(format_traceback(self, record), keep="\n\t")
        line = escape_control(line, keep="\t")
        return f"{line}\n{traceback}" if traceback else line


class JsonFormatter(logging.Formatter):
    """A line for programs."""

    def __init__(self) -> None:
        super().__init__()
        self._host = socket.gethostname()

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object: time, level, logger, pid, host, message; the job's facts; `extra`, what the caller gave with
        it; traceback."""
        about = job_facts(record) or _FactSources.always
        facts: dict[str, Any] = {
            "time": format_time(record),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "host": self._host,
            "message": record.getMessage(),
            **about,
        }
        if extra := {name: value for name, value in _extra(record).items() if name not in about}:
            facts["extra"] = extra
        if traceback := format_traceback(self, record):
            facts["traceback"] = traceback
        return escape_control_json(_json(facts))


# What Python itself puts into a record, and `tarry`; all else is the caller's `extra`.
_PLAIN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "tarry"}


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


def _json(facts: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(facts, enc_hook=repr).decode()
    except (TypeError, ValueError, RecursionError):  # not UTF-8, or a caller's value is not JSON
        return msgspec.json.encode({name: _json_safe(value) for name, value in facts.items()}).decode()


def _json_safe(value: Any) -> Any:
    return value if isinstance(value, int) else encode(value if isinstance(value, str) else repr(value)).decode()


def _quote(value: object) -> str:
    text = one_line(str(value))
    return msgspec.json.encode(encode(text).decode()).decode() if not text or set(text) & set(' "=') else text
