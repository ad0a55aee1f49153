"""Sets where log records go: the same for every process of a master."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from tarry import files
from tarry.errors import ConfigError
from tarry.model.log_target import LogTarget, log_target
from tarry.runtime.logs import syslog
from tarry.runtime.logs.datagrams import DatagramHandler
from tarry.runtime.logs.file import LogFile
from tarry.runtime.logs.formatting import JsonFormatter, TextFormatter
from tarry.runtime.logs.journal import journal_handler

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
