"""The parser of the beanstalkd protocol: what it reads, and that no bytes upset it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.server.beanstalk import replies
from tarry.server.beanstalk.command_parser import LINE_MOST, Command, CommandParser


def parse(data: bytes, cuts: list[int] | None = None, max_job_size: int = 100) -> list[Command]:
    """All commands of these bytes, which come in the pieces that the cuts make."""
    parser, found = CommandParser(max_job_size), []
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts or [])})
    for start, end in pairwise(places):
        parser.feed(data[start:end])
        while (command := parser.next()) is not None:
            found.append(command)
    return found


def refused(answer: bytes, counted: str = "") -> Command:
    """A line that is no command."""
    return Command("refused", answer=answer, counted=counted)


BAD, UNKNOWN = refused(replies.BAD_FORMAT), refused(replies.UNKNOWN_COMMAND)
TOO_BIG, NO_END = refused(replies.JOB_TOO_BIG, "put"), refused(replies.EXPECTED_CRLF, "put")
BAD_PUT = refused(replies.BAD_FORMAT, "put")
LONGEST = "x" * 200


@pytest.mark.parametrize(
    ("data", "command"),
    [
        ("put 1 2 3 4\r\nbody\r\n", Command("put", 0, 1, 2, 3, "", b"body")),
        ("put 1 2 0 0\r\n\r\n", Command("put", 0, 1, 2, 1, "", b"")),
        ("put   1  2 3 02\r\n\r\n\r\n", Command("put", 0, 1, 2, 3, "", b"\r\n")),
        ("put 4294967295 0 0 1\r\na\r\n", Command("put", 0, 2**32 - 1, 0, 1, "", b"a")),
        ("put 4294967296 0 0 1\r\n", BAD),
        ("put 1 2 3 4x\r\n", BAD_PUT),
        ("put 1 2 3 4 \r\n", BAD_PUT),
        ("put 1 2 3\r\n", BAD),
        ("put 1 2 -3 4\r\n", BAD),
        ("put 1 2 3 4\r\nbody12", NO_END),
        ("put 1 2 3 101\r\n" + 103 * "a", TOO_BIG),
        ("put 1 2 3 101 garbage\r\n" + 103 * "a", TOO_BIG),
        ("put\r\n", UNKNOWN),
        ("PUT 1 2 3 4\r\n", Command("browser")),
        ("POST / HTTP/1.1\r\nHost: a\r\n\r\npause-tube default 5\r\n", Command("browser")),
        ("\r\n", UNKNOWN),
        ("reserve\r\n", Command("reserve")),
        ("reserve \r\n", BAD),
        ("reserve-with-timeout\r\n", BAD),
        ("reserve-with-timeout 7\r\n", Command("reserve-with-timeout", seconds=7)),
        ("reserve-with-timeout 7 more\r\n", Command("reserve-with-timeout", seconds=7)),
        # Not so beanstalkd 1.12, which the conformance test may be run with: it takes signs, words, and waits for ever.
        ("reserve-with-timeout 2147483648\r\n", BAD),
        ("reserve-with-timeout -1\r\n", BAD),
        ("reserve-with-timeout x\r\n", BAD),
        ("reserve-with-timeout \r\n", BAD),
        ("reserve-job 18446744073709551615\r\n", Command("reserve-job", 2**64 - 1)),
        ("reserve-job 18446744073709551616\r\n", BAD),
        ("delete 5\r\n", Command("delete", 5)),
        ("delete 5 \r\n", BAD),
        ("delete x\r\n", BAD),
        ("release 5 6 7\r\n", Command("release", 5, 6, 7)),
        ("release 5 6\r\n", BAD),
        ("bury 5 6\r\n", Command("bury", 5, 6)),
        ("bury 5 6 7\r\n", BAD),
        ("touch 5\r\n", Command("touch", 5)),
        ("peek 5\r\n", Command("peek", 5)),
        ("peek\r\n", UNKNOWN),
        ("peek-ready\r\n", Command("peek-ready")),
        ("peek-delayed\r\n", Command("peek-delayed")),
        ("peek-buried\r\n", Command("peek-buried")),
        ("peek-buried 1\r\n", BAD),
        ("kick 5\r\n", Command("kick", 5)),
        ("kick  5 and so on\r\n", Command("kick", 5)),
        ("kick -1\r\n", Command("kick", 2**32 - 1)),
        ("kick 99999999999999999999\r\n", BAD),
        ("kick many\r\n", BAD),
        ("kick-job 5\r\n", Command("kick-job", 5)),
        ("use a-b+c/d;e.f$g_h(i)\r\n", Command("use", tube="a-b+c/d;e.f$g_h(i)")),
        ("use -a\r\n", BAD),
        ("use a b\r\n", BAD),
        ("use \r\n", BAD),
        (f"use {LONGEST}\r\n", Command("use", tube=LONGEST)),
        (f"use {LONGEST}x\r\n", BAD),
        ("watch a\r\n", Command("watch", tube="a")),
        ("ignore a\r\n", Command("ignore", tube="a")),
        ("pause-tube a 5\r\n", Command("pause-tube", seconds=5, tube="a")),
        ("pause-tube -a 5\r\n", refused(replies.BAD_FORMAT, "pause-tube")),
        ("pause-tube a\r\n", BAD),
        ("pause-tube a5\r\n", BAD),
        ("stats\r\n", Command("stats")),
        ("statsx\r\n", BAD),
        ("stats-job 5\r\n", Command("stats-job", 5)),
        ("stats-tube a\r\n", Command("stats-tube", tube="a")),
        ("list-tubes\r\n", Command("list-tubes")),
        ("list-tube-used\r\n", Command("list-tube-used")),
        ("list-tubes-watched\r\n", Command("list-tubes-watched")),
        ("list-tubes-watched \r\n", BAD),
        ("quit\r\n", Command("quit")),
        ("use a\0b\r\n", BAD),
        ("put 1 2 3 4\0\r\n", BAD),
    ],
)
def test_a_command(data: str, command: Command) -> None:
    assert parse(data.encode()) == [command]


def test_a_line_that_is_too_long_ends_where_it_ends() -> None:
    longest = b"use " + b"x" * (LINE_MOST - 6) + b"\r\n"
    assert len(longest) == LINE_MOST
    assert parse(longest + b"stats\r\n") == [BAD, Command("stats")]
    assert parse(b"u" + longest + b"stats\r\n") == [BAD, Command("stats")]
    assert parse(b"x" * 10_000 + b"\r\nstats\r\n") == [BAD, Command("stats")]


def test_what_is_refused_is_not_kept() -> None:
    parser = CommandParser(100)
    parser.feed(b"put 1 2 3 4294967295\r\n")
    for _ in range(50):
        parser.feed(b"a" * 1000)
        assert parser.next() is None
        assert parser.buffered == 0
    parser = CommandParser(100)
    for _ in range(50):
        parser.feed(b"a" * 1000)
        assert parser.next() is None
        assert parser.buffered < LINE_MOST


COMMANDS = st.sampled_from(
    [
        *(b"put 1 2 3 4\r\nbody\r\n", b"put 1 2 3 4\r\nbodyxy", b"put 1 2 3 200\r\n" + b"z" * 202, b"reserve\r\n"),
        *(b"use a\r\n", b"use " + b"x" * 230 + b"\r\n", b"\r", b"\n", b"\0", b"kick 1\r\n", b"nonsense\r\n", b"put 1 "),
    ]
)
STREAMS = st.one_of(st.lists(COMMANDS).map(b"".join), st.binary(max_size=600))
LINES = [
    *(
        b"delete ",
        b"peek ",
        b"peek-ready",
        b"reserve-with-timeout ",
        b"reserve-job ",
        b"reserve",
        b"release ",
        b"bury ",
    ),
    *(
        b"kick ",
        b"kick-job ",
        b"touch ",
        b"stats-job ",
        b"stats-tube ",
        b"stats",
        b"use ",
        b"watch ",
        b"ignore ",
        b"quit",
    ),
    *(b"list-tubes", b"list-tube-used", b"list-tubes-watched", b"pause-tube ", b"pause-tube a ", b"put x", b""),
]
CUTS = st.lists(st.integers(0, 2000), max_size=20)


@given(STREAMS, CUTS)
def test_pieces_of_any_size_give_the_same_commands(data: bytes, cuts: list[int]) -> None:
    assert parse(data, cuts) == parse(data)


@given(st.lists(STREAMS, max_size=10))
def test_any_bytes_keep_within_memory(pieces: list[bytes]) -> None:
    parser = CommandParser(100)
    for piece in pieces:
        parser.feed(piece)
        while parser.next() is not None:
            pass
        # At most a line without its end, or a body.
        assert parser.buffered < LINE_MOST


@given(st.lists(st.sampled_from(LINES), max_size=8), st.text("0123456789 -+x\0\r\n\t", max_size=30), CUTS)
def test_any_arguments_give_one_command_for_each_line(verbs: list[bytes], rest: str, cuts: list[int]) -> None:
    data = b"".join(verb + rest.replace("\r\n", "").encode() + b"\r\n" for verb in verbs)
    found = parse(data, cuts)
    assert found == parse(data)
    assert len(found) == len(verbs)


@given(STREAMS)
def test_after_any_bytes_a_command_is_understood(data: bytes) -> None:
    # Whatever is half read ends within this: a body has at most 100 bytes, or is skipped.
    assert Command("stats") in parse(data + b"\r\n" * 120 + b"stats\r\n" * 2)
