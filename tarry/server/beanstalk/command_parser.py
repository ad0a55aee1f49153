"""From bytes to the commands of the beanstalkd protocol. No I/O, no rule: it reads as beanstalkd 1.13 reads.

Where protocol.txt leaves something open, beanstalkd's own `prot.c` decides: a command is known by how its line begins,
several spaces may stand before a number, and `put` with a body that is too big is answered once the body is skipped.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from tarry.server.beanstalk import replies

LINE_MOST = 224
"""Bytes of a command line, with its end."""
TUBE_MOST = 200
"""Characters of the name of a tube."""
MAX_JOB_SIZE = 65535
"""Bytes of a body that beanstalkd takes where nothing else is said."""

PAUSE_MOST = 7 * 86400
"""Seconds for which a tube can be paused; who asks for more gets so many."""

_U32, _U64, _I32 = 2**32 - 1, 2**64 - 1, 2**31 - 1
_NAME = rb"[A-Za-z0-9+/;.$_()-]"
_TUBE = re.compile(rb"(?!-)%b{1,%d}" % (_NAME, TUBE_MOST))
_PUT = re.compile(rb" *([0-9]+) +([0-9]+) +([0-9]+) +([0-9]+)(.*)", re.DOTALL)
_ONE = re.compile(rb" *([0-9]+)")
_TWO = re.compile(rb" *([0-9]+) +([0-9]+)")
_THREE = re.compile(rb" *([0-9]+) +([0-9]+) +([0-9]+)")
_PAUSE = re.compile(rb" *(%b+) +([0-9]+)" % _NAME)
# As Redis does, and its reason: a web page can have a browser send lines of its own to any port of this host, and the
# first ones are these. No command begins so, whatever follows. TLS begins with a record of its handshake.
_BROWSER = re.compile(rb"(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT) |(?i:host:)|\x16\x03")
# beanstalkd reads this number alone by `strtoul`, which takes signs, and ignores what follows.
_BOUND = re.compile(rb"[ \t\n\v\f\r]*([+-]?[0-9]+)")


class Command(Struct, frozen=True, gc=False):
    """One command of a client; only the fields that the verb has are set."""

    verb: str
    """As in the protocol; `refused`: it is no command, and `answer` is to be sent; `browser`: the client speaks HTTP or
    TLS, and the connection has to end."""
    number: int = 0
    """Of the job; of `kick`: how many at most."""
    priority: int = 0
    seconds: int = 0
    """Delay, or the time to wait."""
    ttr: int = 0
    """Seconds in which the job is to be done, at least 1."""
    tube: str = ""
    body: bytes = b""
    answer: bytes = b""
    counted: str = ""
    """The verb as which beanstalkd counts what it refuses."""


class CommandParser:
    """The commands of one connection: `feed` it what came, then take commands until there is none.

    max_job_size: bytes; a longer body is skipped and refused.
    """

    def __init__(self, max_job_size: int = MAX_JOB_SIZE) -> None:
        self._max_job_size = max_job_size
        self._buffer = bytearray()
        self._at = 0
        self._put: Command | None = None
        self._size = 0
        self._skip = 0
        self._is_long_line = False

    @property
    def buffered(self) -> int:
        """Bytes that came and belong to no command yet."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Takes what came from the client."""
        if self._at:
            # Here and not after each command: a hundred commands that came together cost one move.
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def next(self) -> Command | None:
        """The next command; None until more has come. Never raises, whatever came."""
        if self._put is not None:
            return self._body()
        if self._skip:
            return self._skip_body()
        buffer, start = self._buffer, self._at
        if not self._is_long_line and _BROWSER.match(buffer, start):
            # What follows is no commands either.
            self._at = len(buffer)
            return _FROM_BROWSER
        end = buffer.find(b"\r\n", start, start + LINE_MOST)
        if end < 0:
            return self._long_line()
        self._at = end + 2
        if self._is_long_line:
            self._is_long_line = False
            return _BAD_FORMAT
        line = bytes(memoryview(buffer)[start:end])
        return self._line(line)

    def _line(self, line: bytes) -> Command | None:
        if line.startswith(b"put ") and b"\0" not in line:
            return self._put_line(line)
        return read_line(line)

    def _long_line(self) -> Command | None:
        """There is no end of a line within the limit: keeps only what may be half of an end."""
        if self.buffered >= LINE_MOST:
            self._is_long_line = True
        if self._is_long_line:
            # A part of what is left may hold an end all the same, so the rest of the line goes piece by piece.
            end = self._buffer.find(b"\r\n", self._at)
            if end < 0:
                self._at = len(self._buffer) - self._buffer.endswith(b"\r")
                return None
            self._at, self._is_long_line = end + 2, False
            return _BAD_FORMAT
        return None

    def _put_line(self, line: bytes) -> Command | None:
        read = _PUT.match(line, 4)
        if read is None:
            return _BAD_FORMAT
        priority, delay, ttr, size = map(int, read.groups()[:4])
        if max(priority, delay, ttr, size) > _U32:
            return _BAD_FORMAT
        # The size comes before what is left on the line, as in beanstalkd.
        if size > self._max_job_size:
            self._skip = size + 2
            return self._skip_body()
        if read.group(5):
            return _BAD_PUT
        self._put, self._size = Command("put", 0, priority, delay, max(ttr, 1)), size
        return self._body()

    def _body(self) -> Command | None:
        """The `put` whose line was read, once its body and the end of that have come."""
        put, start, end = self._put, self._at, self._at + self._size
        if put is None or len(self._buffer) < end + 2:
            return None
        self._put, self._at = None, end + 2
        if self._buffer[end : end + 2] != b"\r\n":
            return _EXPECTED_CRLF
        body = bytes(memoryview(self._buffer)[start:end])
        return Command("put", 0, put.priority, put.seconds, put.ttr, "", body)

    def _skip_body(self) -> Command | None:
        taken = min(self._skip, self.buffered)
        self._skip -= taken
        self._at += taken
        return None if self._skip else _JOB_TOO_BIG


def read_line(line: bytes) -> Command:
    """The command of a line without its end, any but `put`."""
    if b"\0" in line:
        return _BAD_FORMAT
    for start, read in _READERS:
        if line.startswith(start):
            return read(line[len(start) :]) or _BAD_FORMAT
    return Command("refused", answer=replies.UNKNOWN_COMMAND)


ParseLine = Callable[[bytes], Command | None]


def _alone(verb: str) -> ParseLine:
    command = Command(verb)
    return lambda rest: None if rest else command


def _number_parser(verb: str) -> ParseLine:
    def read(rest: bytes) -> Command | None:
        found = _ONE.fullmatch(rest)
        return Command(verb, int(found[1])) if found and int(found[1]) <= _U64 else None

    return read


def _tube_parser(verb: str) -> ParseLine:
    return lambda rest: Command(verb, tube=rest.decode()) if _TUBE.fullmatch(rest) else None


def _reserve_with_timeout(rest: bytes) -> Command | None:
    # What follows the number is ignored, as in beanstalkd.
    found = _ONE.match(rest)
    return Command("reserve-with-timeout", seconds=int(found[1])) if found and int(found[1]) <= _I32 else None


def _release(rest: bytes) -> Command | None:
    found = _THREE.fullmatch(rest)
    if found is None:
        return None
    number, priority, delay = map(int, found.groups())
    return Command("release", number, priority, delay) if number <= _U64 and max(priority, delay) <= _U32 else None


def _bury(rest: bytes) -> Command | None:
    found = _TWO.fullmatch(rest)
    if found is None:
        return None
    number, priority = map(int, found.groups())
    return Command("bury", number, priority) if number <= _U64 and priority <= _U32 else None


def _kick(rest: bytes) -> Command | None:
    found = _BOUND.match(rest)
    # `strtoul` takes 64 bits and a sign; beanstalkd keeps the lower 32 bits.
    return Command("kick", int(found[1]) & _U32) if found and abs(int(found[1])) <= _U64 else None


def _pause_tube(rest: bytes) -> Command | None:
    found = _PAUSE.fullmatch(rest)
    if found is None or int(found[2]) > _U32:
        return None
    if not _TUBE.fullmatch(found[1]):
        return Command("refused", answer=replies.BAD_FORMAT, counted="pause-tube")
    return Command("pause-tube", seconds=min(int(found[2]), PAUSE_MOST), tube=found[1].decode())


_FROM_BROWSER = Command("browser")
_BAD_FORMAT = Command("refused", answer=replies.BAD_FORMAT)
_BAD_PUT = Command("refused", answer=replies.BAD_FORMAT, counted="put")
_EXPECTED_CRLF = Command("refused", answer=replies.EXPECTED_CRLF, counted="put")
_JOB_TOO_BIG = Command("refused", answer=replies.JOB_TOO_BIG, counted="put")
_READERS: tuple[tuple[bytes, ParseLine], ...] = (
    # In beanstalkd's order: the first that fits the beginning of the line is the command.
    (b"delete ", _number_parser("delete")),
    (b"peek ", _number_parser("peek")),
    (b"peek-ready", _alone("peek-ready")),
    (b"peek-delayed", _alone("peek-delayed")),
    (b"peek-buried", _alone("peek-buried")),
    (b"reserve-with-timeout ", _reserve_with_timeout),
    (b"reserve-job ", _number_parser("reserve-job")),
    (b"reserve", _alone("reserve")),
    (b"release ", _release),
    (b"bury ", _bury),
    (b"kick ", _kick),
    (b"kick-job ", _number_parser("kick-job")),
    (b"touch ", _number_parser("touch")),
    (b"stats-job ", _number_parser("stats-job")),
    (b"stats-tube ", _tube_parser("stats-tube")),
    (b"stats", _alone("stats")),
    (b"use ", _tube_parser("use")),
    (b"watch ", _tube_parser("watch")),
    (b"ignore ", _tube_parser("ignore")),
    (b"list-tubes-watched", _alone("list-tubes-watched")),
    (b"list-tube-used", _alone("list-tube-used")),
    (b"list-tubes", _alone("list-tubes")),
    (b"quit", lambda rest: Command("quit")),
    (b"pause-tube", _pause_tube),
    (b"auth ", lambda rest: Command("auth", body=rest)),
)
