"""The answers of the beanstalkd protocol, as bytes."""

from collections.abc import Iterable, Mapping

OUT_OF_MEMORY = b"OUT_OF_MEMORY\r\n"
INTERNAL_ERROR = b"INTERNAL_ERROR\r\n"
DRAINING = b"DRAINING\r\n"
BAD_FORMAT = b"BAD_FORMAT\r\n"
UNKNOWN_COMMAND = b"UNKNOWN_COMMAND\r\n"
EXPECTED_CRLF = b"EXPECTED_CRLF\r\n"
JOB_TOO_BIG = b"JOB_TOO_BIG\r\n"
NOT_FOUND = b"NOT_FOUND\r\n"
DEADLINE_SOON = b"DEADLINE_SOON\r\n"
TIMED_OUT = b"TIMED_OUT\r\n"
DELETED = b"DELETED\r\n"
RELEASED = b"RELEASED\r\n"
BURIED = b"BURIED\r\n"
TOUCHED = b"TOUCHED\r\n"
KICKED = b"KICKED\r\n"
NOT_IGNORED = b"NOT_IGNORED\r\n"
PAUSED = b"PAUSED\r\n"
AUTHORIZED = b"AUTHORIZED\r\n"
NOT_AUTHORIZED = b"NOT_AUTHORIZED\r\n"
"""Of the extension `auth`; clients take what they do not know for an error."""


def inserted(number: int) -> bytes:
    """To `put`."""
    return b"INSERTED %d\r\n" % number


def using(tube: str) -> bytes:
    """To `use` and `list-tube-used`."""
    return b"USING %s\r\n" % tube.encode()


def watching(count: int) -> bytes:
    """To `watch` and `ignore`."""
    return b"WATCHING %d\r\n" % count


def kicked(count: int) -> bytes:
    """To `kick`; `kick-job` has KICKED."""
    return b"KICKED %d\r\n" % count


def reserved(number: int, body: bytes) -> bytes:
    """To each command that reserves."""
    return b"RESERVED %d %d\r\n%b\r\n" % (number, len(body), body)


def found(number: int, body: bytes) -> bytes:
    """To each command that peeks."""
    return b"FOUND %d %d\r\n%b\r\n" % (number, len(body), body)


def mapping(values: Mapping[str, object]) -> bytes:
    """Statistics, as YAML."""
    return _document(f"{name}: {value}\n" for name, value in values.items())


def names(values: Iterable[str]) -> bytes:
    """A list of tubes, as YAML."""
    return _document(f"- {value}\n" for value in values)


def _document(lines: Iterable[str]) -> bytes:
    text = ("---\n" + "".join(lines)).encode()
    return b"OK %d\r\n%b\r\n" % (len(text), text)
