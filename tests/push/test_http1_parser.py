"""Answers as they come over the wire: whole, in pieces, wrong, without an end."""

from collections.abc import Iterable, Sequence
from itertools import islice, pairwise, repeat

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tarry.push.http.failure import FailureKind
from tarry.push.http.http1_parser import AnswerError, AnswerParser
from tarry.push.http.response import MOST_BODY
from tests.push.sending import HEAD

OK = HEAD + b"Content-Length: 2\r\n\r\nok"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def parsed(pieces: Iterable[bytes], method: str = "POST") -> AnswerParser:
    """The answer, after which the connection has ended."""
    answer = AnswerParser()
    answer.begin(method)
    if not any(answer.feed(piece) for piece in pieces):
        answer.end()
    return answer


def refused(pieces: Iterable[bytes]) -> FailureKind:
    with pytest.raises(AnswerError) as raised:
        parsed(pieces)
    return raised.value.kind


COMPLETE: dict[str, tuple[bytes, int, bytes, bool]] = {
    "a length": (OK, 200, b"ok", True),
    "chunks": (CHUNKED + b"2;a=b\r\nok\r\n1\r\n!\r\n0\r\nX-Sum: 1\r\n\r\n", 200, b"ok!", True),
    "chunks and a length": (
        HEAD + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        200,
        b"ok",
        True,
    ),
    "spaces behind a size": (CHUNKED + b"2  \r\nok\r\n0\r\n\r\n", 200, b"ok", True),
    "line ends without CR": (OK.replace(b"\r\n", b"\n"), 200, b"ok", True),
    "no reason": (b"HTTP/1.1 204\r\n\r\n", 204, b"", True),
    "no body, whatever the length says": (b"HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n", 304, b"", True),
    "until the end": (HEAD + b"\r\nok", 200, b"ok", False),
    "until the end, of old": (b"HTTP/1.0 200 OK\r\n\r\nok", 200, b"ok", False),
    "coded until the end": (HEAD + b"Transfer-Encoding: gzip\r\n\r\nok", 200, b"ok", False),
    "kept, of old": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        200,
        b"ok",
        True,
    ),
    "closed": (HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    "interim answers": (b"HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK, 200, b"ok", True),
    "another protocol": (b"HTTP/1.1 101 So\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n\0\1", 101, b"", False),
    "another protocol is offered": (
        HEAD + b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nok",
        200,
        b"ok",
        True,
    ),
    "two answers": (OK + OK, 200, b"ok", False),
    "something behind it": (OK + b"x", 200, b"ok", False),
    "something behind a last one": (
        HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 No\r\n\r\n",
        200,
        b"ok",
        False,
    ),
}


@pytest.mark.parametrize("case", COMPLETE)
def test_answers(case: str) -> None:
    data, *expected = COMPLETE[case]
    answer = parsed([data])
    assert [answer.status, answer.body(), answer.is_reusable] == expected


@pytest.mark.parametrize("case", COMPLETE)
def test_the_pieces_in_which_it_comes_make_no_difference(case: str) -> None:
    data, status, body, _ = COMPLETE[case]
    for pieces in [[data[:at], data[at:]] for at in range(1, len(data))] + [[bytes([byte]) for byte in data]]:
        answer = parsed(pieces)
        assert (answer.status, answer.body()) == (status, body)


def test_the_next_answer_has_nothing_of_the_last() -> None:
    answer = AnswerParser()
    for n in range(3):
        answer.begin("POST")
        body = b"%d" % n
        assert answer.feed(HEAD + b"X-%d: 1\r\nContent-Length: 1\r\n\r\n%s" % (n, body))
        assert answer.headers() == ((f"x-{n}", "1"), ("content-length", "1"))
        assert (answer.body(), answer.is_reusable) == (body, True)


def test_the_answer_to_head_has_no_body_whatever_its_headers_say() -> None:
    answer = parsed([HEAD + b"Content-Length: 9\r\n\r\n"], "HEAD")
    assert (answer.status, answer.body(), answer.is_reusable) == (200, b"", False)


def test_spaces_around_a_value_are_no_part_of_it() -> None:
    answer = parsed([HEAD + b"A:  b c \t\r\nB:\r\nC: K\xf6ln\r\nContent-Length: 0\r\n\r\n"])
    assert answer.headers() == (("a", "b c"), ("b", ""), ("c", "(not ASCII)"), ("content-length", "0"))


def test_trailers_are_no_headers() -> None:
    answer = parsed([CHUNKED + b"0\r\nRetry-After: 7\r\n\r\n"])
    assert answer.headers() == (("transfer-encoding", "chunked"),)


WRONG: dict[str, bytes] = {
    "HTTP/2 unasked": b"HTTP/2.0 200 OK\r\n\r\n",
    "HTTP/0.9": b"HTTP/0.9 200 OK\r\n\r\n",
    "no such status": b"HTTP/1.1 000 OK\r\n\r\n",
    "four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "TLS": b"\x15\x03\x03\x00\x02\x02\x46",
    "a negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "a length beyond all": HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a folded header": HEAD + b"A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "a space in a name": HEAD + b"A : b\r\nContent-Length: 0\r\n\r\n",
    "a zero byte": HEAD + b"A: \0\r\nContent-Length: 0\r\n\r\n",
    "a CR alone": HEAD + b"A: b\rB: c\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_answer(case: str) -> None:
    assert refused([WRONG[case]]) is FailureKind.MALFORMED


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", FailureKind.CLOSED),
        (HEAD, FailureKind.CLOSED),
        (b"HTTP/1.1 100 Go\r\n\r\n", FailureKind.CLOSED),
        (OK[:-1], FailureKind.BROKEN),
        (CHUNKED + b"2\r\nok\r\n", FailureKind.BROKEN),
        (CHUNKED + b"0\r\nA: b\r\n", FailureKind.BROKEN),
        (CHUNKED + b"fffffffffffffffff\r\n", FailureKind.BROKEN),
        (CHUNKED + b"2\r\nokay\r\n", FailureKind.BROKEN),
    ],
)
def test_what_ends_too_early_or_goes_wrong_in_the_body(data: bytes, kind: FailureKind) -> None:
    assert refused([data]) is kind


def test_a_connection_that_broke_is_no_end_of_a_body() -> None:
    answer = AnswerParser()
    answer.begin("POST")
    assert not answer.feed(HEAD + b"\r\nok")
    with pytest.raises(AnswerError, match="Connection reset"):
        answer.end("Connection reset by peer (os error 104)")


ENDLESS: dict[str, tuple[bytes, bytes, FailureKind]] = {
    "a name": (HEAD, b"a" * 9999, FailureKind.HEAD_TOO_LARGE),
    "a value": (HEAD + b"A: ", b"a" * 9999, FailureKind.HEAD_TOO_LARGE),
    "headers": (HEAD, b"A: b\r\n", FailureKind.HEAD_TOO_LARGE),
    "a reason": (b"HTTP/1.1 200 ", b"a" * 9999, FailureKind.HEAD_TOO_LARGE),
    "empty lines": (b"", b"\r\n" * 99, FailureKind.HEAD_TOO_LARGE),
    "interim answers": (b"", b"HTTP/1.1 100 Go\r\n\r\n", FailureKind.HEAD_TOO_LARGE),
    "trailers": (CHUNKED + b"0\r\n", b"A: b\r\n" * 99, FailureKind.BROKEN),
    "a trailer": (CHUNKED + b"0\r\nA: ", b"a" * 9999, FailureKind.BROKEN),
    "an extension": (CHUNKED + b"1;a=", b"a" * 9999, FailureKind.BROKEN),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_what_has_no_end_is_given_up(case: str) -> None:
    start, piece, kind = ENDLESS[case]
    pieces = iter([start, *islice(repeat(piece), 100_000)])
    assert refused(pieces) is kind
    assert next(pieces)


@pytest.mark.parametrize("piece", [b"1\r\na\r\n", b"%x\r\n%s\r\n" % (MOST_BODY, b"a" * MOST_BODY)])
def test_of_a_body_a_byte_more_is_taken(piece: bytes) -> None:
    pieces = iter([CHUNKED, *islice(repeat(piece), 100_000)])
    answer = parsed(pieces)
    assert (len(answer.body()), answer.is_reusable) == (MOST_BODY + 1, False)
    assert next(pieces)


def outcome(pieces: Sequence[bytes]) -> object:
    try:
        answer = parsed(pieces)
    except AnswerError as error:
        return error.kind
    assert 100 <= answer.status < 1000
    assert len(answer.body()) <= MOST_BODY + 1
    return answer.status, answer.version, answer.headers(), answer.body()


HEADS = [b"HTTP/1.1 200 OK", b"HTTP/1.1 100 Go\r\n\r\n", b"Content-Length: ", b"Connection: close", b"A: b\r\n"]
BODIES = [b"Transfer-Encoding: chunked", b"0\r\n\r\n", b"2\r\nok\r\n", b"hello", b"5"]
SIGNS = [b"\r\n", b"\n", b"\r", b" ", b":", b"\0"]
PIECES = st.sampled_from([*HEADS, *BODIES, *SIGNS])


@given(st.lists(PIECES | st.binary(max_size=8), max_size=20).map(b"".join), st.lists(st.integers(0, 200), max_size=5))
@example(OK, [3, 18, 40])
def test_garbage_is_refused_or_read_and_pieces_make_no_difference(data: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(data)]
    assert outcome([data[a:b] for a, b in pairwise(places)]) == outcome([data])


@given(st.sampled_from([data for data, *_ in COMPLETE.values()]), st.data())
def test_an_answer_with_a_mistake_is_refused_or_read(data: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(data)))
    outcome([data[:at] + draw.draw(st.binary(max_size=4)) + data[at + draw.draw(st.integers(0, 3)) :]])
