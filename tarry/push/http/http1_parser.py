"""Parses answers, with a bound on all that a server can send. llhttp does the work, the parser of Node.js."""

from functools import lru_cache
from typing import NoReturn

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from tarry.push.http.failure import FailureKind
from tarry.push.http.response import MOST_BODY, MOST_HEAD, Headers

MOST_HEADERS = 100
_MOST_BEFORE_BODY = 256 * 1024
"""Bytes until the head has ended, interim answers included. llhttp would keep a header of any size."""
_MOST_BYTES = 1024 * 1024
"""Bytes of a whole answer. In chunks of one byte each, MOST_BODY takes 384 KiB."""


class AnswerError(Exception):
    """There is no complete answer. kind: MALFORMED, HEAD_TOO_LARGE, CLOSED or BROKEN."""

    def __init__(self, kind: FailureKind, cause: str) -> None:
        super().__init__(cause)
        self.kind = kind


class AnswerParser:
    """The parser of one connection. For each answer call `begin`, then `feed` until it returns True."""

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        # The HTTP library that has the requests with TLS allows these too: a line that ends without CR, a length beside
        # chunks, spaces behind the size of a chunk.
        self._parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_chunked_length=True, lenient_spaces_after_chunk_size=True
        )
        self.begin("")

    def begin(self, method: str) -> None:
        """The next bytes answer a request of this method."""
        self._method = method
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._size = self._received = 0
        self._is_over = False
        self._error: AnswerError | None = None
        self.status, self.version = 0, ""
        """0 and empty until the head is complete."""
        self.is_reusable = False
        """The answer is over and nothing came after it, so its connection can take another request."""

    def feed(self, data: bytes) -> bool:
        """True: the answer is over. AnswerError: there will be none."""
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self.is_reusable = False
            # What follows an answer does not spoil it.
            if not self._is_over:
                kind = FailureKind.BROKEN if self.status else FailureKind.MALFORMED
                raise self._error or AnswerError(kind, str(error)) from None
        if not self._is_over:
            self._check_size()
        return self._is_over

    def end(self, cause: str = "") -> None:
        """The connection has ended. AnswerError: before the answer had. cause: the error that ended it."""
        if not self.status:
            raise AnswerError(FailureKind.CLOSED, cause or "the server closed it")
        if cause or any(map(_sets_length, self.headers())):
            raise AnswerError(FailureKind.BROKEN, cause or "the server closed the connection")

    def headers(self) -> Headers:
        """Names in lower case."""
        return tuple([(_lower(name), _text(value)) for name, value in self._headers])

    def body(self) -> bytes:
        """At most one byte more than MOST_BODY: then there is more."""
        return b"".join(self._body)[: MOST_BODY + 1]

    def on_message_begin(self) -> None:
        """Called by llhttp, as those below."""
        if self._is_over:
            self.is_reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come here as well, and nobody asks for them.
        if self.status:
            return
        if len(self._headers) == MOST_HEADERS:
            self._fail(FailureKind.HEAD_TOO_LARGE, "is too large")
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._is_over:
            return
        status, self.version = self._parser.get_status_code(), self._parser.get_http_version()
        if status < 100 or self.version not in ("1.1", "1.0"):
            self._fail(FailureKind.MALFORMED, "its status line is not valid")
        if status < 200 and status != 101:
            # An interim answer, before the one that counts.
            self._headers = []
            return
        self.status = status
        self._check_head_size()
        # No body follows, whatever the headers say. llhttp does not know of HEAD.
        self._is_over = self._method == "HEAD" or status == 101

    def on_body(self, data: bytes) -> None:
        if self._is_over:
            return
        self._body.append(data)
        self._size += len(data)
        self._is_over = self._size > MOST_BODY

    def on_message_complete(self) -> None:
        if self.status and not self._is_over:
            self._is_over = True
            self.is_reusable = self._parser.should_keep_alive()

    def _check_size(self) -> None:
        if self.status and self._received > _MOST_BYTES:
            self._fail(FailureKind.BROKEN, "it has too many bytes around its body")
        if not self.status and self._received > _MOST_BEFORE_BODY:
            self._fail(FailureKind.HEAD_TOO_LARGE, "is too large")

    def _check_head_size(self) -> None:
        # Most often all bytes so far are too few, and nothing has to be counted.
        if self._received > MOST_HEAD and sum(len(name) + len(value) for name, value in self._headers) > MOST_HEAD:
            self._fail(FailureKind.HEAD_TOO_LARGE, f"has more than {MOST_HEAD // 1024} KiB")

    def _fail(self, kind: FailureKind, cause: str) -> NoReturn:
        # llhttp replaces what a callback raises.
        self._error = AnswerError(kind, cause)
        raise self._error


def _sets_length(header: tuple[str, str]) -> bool:
    """The answer says itself where it ends."""
    name, value = header
    return name == "content-length" or (name == "transfer-encoding" and value.lower().endswith("chunked"))


@lru_cache(1024)
def _lower(name: bytes) -> str:
    return name.decode("ascii").lower()


def _text(value: bytes) -> str:
    return value.decode().rstrip(" \t") if value.isascii() else "(not ASCII)"
