"""Where log records go and how a line looks: the same for every process of a master."""

import logging
import sys
from pathlib import Path
from time import gmtime, strftime

import msgspec

from tarry.errors import ConfigError

FORMATS = ("text", "json")


def configure(target: str | Path, format: str = "text", level: str = "info") -> None:
    """Sends all records of this process, and of those that it forks, to "stderr" or a file. ConfigError: they cannot.

    A line is `2026-11-21T10:00:00.123Z INFO tarry.master[123] message`, or a JSON object of the same facts.
    """
    if format not in FORMATS:
        raise ConfigError(f"log_format {format!r}: one of {', '.join(FORMATS)}")
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ConfigError(f"log_level {level!r}: one of debug, info, warning, error")
    handler = _handler(target)
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=number, force=True)


def _handler(target: str | Path) -> logging.Handler:
    if target == "stderr":
        return logging.StreamHandler(sys.stderr)
    try:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        return logging.FileHandler(target, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"log file {target} cannot be written ({error.strerror}): set master.log to another"
        ) from None


class TextLines(logging.Formatter):
    """A line for people; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in the message."""
        message = record.getMessage().replace("\n", "\\n").replace("\r", "\\r")
        line = f"{_time(record)} {record.levelname} {record.name}[{record.process}] {message}"
        trace = _trace(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonLines(logging.Formatter):
    """A line for programs."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object."""
        facts = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        trace = _trace(self, record)
        return msgspec.json.encode(facts | {"traceback": trace} if trace else facts).decode()


def _time(record: logging.LogRecord) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(record.created)) + f".{int(record.msecs):03}Z"


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts)
