"""What an answer, or the lack of one, means for a delivery."""

from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from tarry.model.duration import HOUR, SECOND
from tarry.push.endpoint.success import SuccessCodes
from tarry.push.http.failure import Failure, FailureKind
from tarry.push.http.response import HttpResponse
from tarry.push.rule.cel import RetryCondition

MAX_RETRY_AFTER = HOUR
"""Microseconds. A longer Retry-After counts as this."""
MAYBE = "maybe delivered"

_RETRYABLE = frozenset({408, 425, 429})
_BUSY = frozenset({408, 429, 502, 503, 504})
_SLOW = frozenset({FailureKind.CONNECT_TIMEOUT, FailureKind.TIMEOUT, FailureKind.UNANSWERED})
_FINAL = frozenset({FailureKind.REQUEST, FailureKind.FORBIDDEN, FailureKind.REDIRECT})


class Delivered(Struct, frozen=True):
    """Accepted. `reason`, here and below: one line for the record and for people."""

    reason: str


class Again(Struct, frozen=True):
    """Not accepted, or not known to be: try again."""

    reason: str
    after: int | None = None
    """Microseconds for which the endpoint asked for no request of any job; at most the cap. None: it did not ask.
    `RetrySchedule.delay(..., asked=after)` computes the job's delay from it."""
    maybe: bool = False
    """The endpoint may have processed the request: maybe delivered."""
    busy: bool = False
    """The endpoint is overloaded or too slow: send it fewer at once."""
    counted: bool = True
    """The attempt counts. It does not if this machine was the cause."""


class Final(Struct, frozen=True):
    """Not accepted, and a retry cannot help: the job is dead."""

    reason: str
    maybe: bool = False


class Disabled(Struct, frozen=True):
    """The endpoint is gone: nothing is sent to it until it is enabled again."""

    reason: str


DeliveryVerdict = Delivered | Again | Final | Disabled


class SuccessRules(Protocol):
    """The settings of an endpoint that decide which answers are success. `Endpoint` has them."""

    @property
    def retry_when(self) -> RetryCondition | None: ...

    @property
    def success(self) -> SuccessCodes: ...

    @property
    def has_fixed_url(self) -> bool: ...

    @property
    def redirects(self) -> int: ...


def judge(terms: SuccessRules, came: HttpResponse | Failure, now: float, cap: int = MAX_RETRY_AFTER) -> DeliveryVerdict:
    """The verdict on an attempt. now: seconds since the epoch, for a Retry-After that is a date. cap: microseconds.

    Without a rule, the status decides: delivered if it is in `success`; retried for 408, 425, 429, 5xx and network
    errors; 410 disables the endpoint, if all jobs have the same url and no redirect led elsewhere; all else is
    rejected. A rule that reads `status` decides alone. Any other rule can ask for a retry, but the answer counts as
    delivered only if its status is in `success` too.
    """
    if isinstance(came, Failure):
        # Only a rule needs the body, and only a redirect needs more of the head: else the status is enough.
        if came.kind is FailureKind.BROKEN and terms.retry_when is None and came.status and came.status // 100 != 3:
            verdict = judge(terms, HttpResponse(came.status), now, cap)
            return replace(verdict, reason=f"{verdict.reason}; the answer was cut off in its body")
        return _judge_failure(came)
    # First, since nearly all answers are this one.
    if terms.retry_when is None and came.status in terms.success:
        return Delivered(f"answered {_format_status(came.status)}")
    after, busy = retry_after(came, now, cap), came.status in _BUSY
    if terms.retry_when is not None:
        said = terms.retry_when.evaluate(came)
        if said.again:
            return Again(f"answered {_format_status(came.status)}; {said.reason}", after, busy=busy)
        # A rule that does not read the status may not expect a 404 whose body it would accept.
        if terms.retry_when.reads_status or came.status in terms.success:
            return Delivered(f"answered {_format_status(came.status)}; the rule is content")
    return _judge_status(terms, came, after, busy)


def _judge_status(terms: SuccessRules, came: HttpResponse, after: int | None, busy: bool) -> DeliveryVerdict:
    if came.status in _RETRYABLE or came.status >= 500:
        return Again(f"answered {_format_status(came.status)}", after, busy=busy)
    # With one url for each job, 410 is about one job. After a redirect it is about another address.
    if came.status == HTTPStatus.GONE and terms.has_fixed_url and not came.url:
        return Disabled(f"answered {_format_status(came.status)}: the endpoint is disabled; enable it once it is back")
    return Final(_refusal(came, terms.redirects))


def _judge_failure(failure: Failure) -> DeliveryVerdict:
    reason = f"{failure.reason}; {MAYBE}" if failure.sent else failure.reason
    if failure.kind in _FINAL:
        return Final(reason, failure.sent)
    # A request that was sent may have been processed, so the attempt counts, whatever the cause.
    counted = failure.kind is not FailureKind.LOCAL or failure.sent
    return Again(reason, None, failure.sent, failure.kind in _SLOW, counted)


def _refusal(answer: HttpResponse, redirects: int) -> str:
    said = f"answered {_format_status(answer.status)}"
    if answer.status not in range(300, 400):
        return said
    if not (location := answer.header("location")):
        return f"{said}, which is no success here; add it to success if it is one"
    said = f"{said}, to {_redact_location(location)}"
    if not redirects:
        return f"{said}; redirects are not followed so far: set the url to that, or redirects"
    if answer.status in (HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND):
        return f"{said}; after it only GET and HEAD follow: set the url to that, or have it answer with 307 or 308"
    return f"{said}; only 301, 302, 303, 307 and 308 are followed: set the url to that"


def _redact_location(location: str) -> str:
    """The location without parts that may be secret: query, fragment, user and password."""
    text = location.partition("?")[0].partition("#")[0]
    try:
        text = text.replace(f"{urlsplit(text).netloc.rpartition('@')[0]}@", "", 1) if "@" in text else text
    except ValueError:
        text = "nowhere"
    # The text goes to logs and terminals.
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    return text if len(text) <= 200 else text[:197] + "..."


@lru_cache(maxsize=1000)
def _format_status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def retry_after(answer: HttpResponse, now: float, cap: int = MAX_RETRY_AFTER) -> int | None:
    """The Retry-After of an answer in microseconds, from 0 to the cap; None: it has none that can be read."""
    text = answer.header("retry-after").strip()
    if text.isascii() and text.isdigit():
        # Beyond the cap anyway, and int() refuses thousands of digits.
        return cap if len(text) > 9 else min(int(text) * SECOND, cap)
    if (then := _date(text)) is None:
        return None
    # Relative to the endpoint's own clock, if it sends a Date: then it does not matter if that clock is wrong.
    since = _date(answer.header("date"))
    return round(min(max(then - (now if since is None else since), 0) * SECOND, cap))


def _date(text: str) -> float | None:
    """Seconds since the epoch of an HTTP date."""
    try:
        return parsedate_to_datetime(text).timestamp() if text.endswith("GMT") else None
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
