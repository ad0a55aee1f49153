"""Where a log goes, as people write it: "stderr", "syslog", "journal", a URL of one of these, or a file."""

import difflib
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

SYSLOG_SOCKET, JOURNAL_SOCKET = "/dev/log", "/run/systemd/journal/socket"
SYSLOG_PORT = 514
NAMES = ("stderr", "syslog", "journal")

# A name that is close to one of these is a typing error rather than a file.
_ALMOST = (*NAMES, "stdout")

MAX_WRITTEN = 4096
"""Characters: the kernel's limit for a path."""


class LogTarget(Struct, frozen=True):
    """A place for log lines."""

    kind: Literal["stderr", "syslog", "journal", "file"]
    path: str = ""
    """The path of the file or the socket; empty for a host."""
    host: str = ""
    port: int = 0
    """The UDP port of the host."""


def log_target(written: str) -> LogTarget:
    """The target that is written so; ValueError if it is none, or close to the name of one."""
    if len(written) > MAX_WRITTEN:
        raise ValueError("longer than the path of a file may be")
    if "://" in written:
        return _of_url(written)
    match written:
        case "stderr":
            return LogTarget("stderr")
        case "syslog":
            return LogTarget("syslog", SYSLOG_SOCKET)
        case "journal":
            return LogTarget("journal", JOURNAL_SOCKET)
    if not written or "\0" in written or _close(written):
        raise ValueError("no file, or not to be taken for the name of one")
    return LogTarget("file", written)


def _close(written: str) -> bool:
    # A path or a suffix shows that a file is meant: "./syslog" and "syslog.log" are files.
    bare = "/" not in written and "." not in written
    return bare and bool(difflib.get_close_matches(written.lower(), _ALMOST, 1, 0.75))


def _of_url(written: str) -> LogTarget:
    parts = urlsplit(written)
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError("nothing but a host, a port, or a path")
    if parts.scheme == "syslog" and parts.hostname and parts.path in ("", "/"):
        port = SYSLOG_PORT if parts.port is None else parts.port
        if port < 1:
            raise ValueError("no port")
        return LogTarget("syslog", host=parts.hostname, port=port)
    if parts.scheme in ("syslog", "journal") and not parts.netloc and len(parts.path) > 1:
        return LogTarget("syslog" if parts.scheme == "syslog" else "journal", parts.path)
    raise ValueError("neither syslog://host:port, syslog:///socket nor journal:///socket")
