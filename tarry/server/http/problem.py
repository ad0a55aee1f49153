"""Errors as answers: problem details (RFC 9457). Each kind of error has its line here."""

import logging
import math

from msgspec import Struct

from tarry import errors
from tarry.model.refusals import NotPossible
from tarry.operate.problem import RequestError

log = logging.getLogger("tarry.server")

MEDIA_TYPE = "application/problem+json"


class Problem(Struct, frozen=True, omit_defaults=True):
    """Why a request failed, as RFC 9457 has it."""

    type: str
    """What kind of problem it is: for programs, which may rely on it."""
    title: str
    """The kind of problem, in words."""
    status: int
    detail: str
    """What is wrong with this request, and what to do about it."""
    instance: str = ""
    """The path of the request."""
    field: str | None = None
    """The part of the request that is wrong."""
    retry_after: float | None = None
    """Seconds after which the same request may succeed."""
    stored: bool | None = None
    """After a put that failed: false if the job is surely not stored. Missing: it may be; send it again with the same
    Idempotency-Key."""
    id: str | None = None
    """The job that this is about."""


class ProblemKind(Struct, frozen=True):
    """How errors of a class are answered."""

    status: int
    name: str
    title: str


REQUEST_STATUS = {
    400: ProblemKind(400, "bad-request", "The request is wrong"),
    403: ProblemKind(403, "not-allowed", "This caller may not do this"),
    404: ProblemKind(404, "no-such-path", "There is nothing at this path"),
    405: ProblemKind(405, "method-not-allowed", "This path has no such method"),
    408: ProblemKind(408, "request-timeout", "The request did not arrive in time"),
    409: ProblemKind(409, "conflict", "This does not fit the present state"),
    412: ProblemKind(412, "changed", "It has changed since it was read"),
    413: ProblemKind(413, "too-large", "The request is too large"),
    415: ProblemKind(415, "media-type", "The body is of another type than this method takes"),
    422: ProblemKind(422, "wrong-value", "A value of the request is wrong"),
    431: ProblemKind(431, "head-too-large", "The head of the request is too large"),
}
"""The kinds of RequestError, by status."""

KINDS: dict[type[Exception], ProblemKind] = {
    errors.NotAuthenticated: ProblemKind(401, "not-authenticated", "This server asks for a token"),
    errors.NotAllowed: REQUEST_STATUS[403],
    errors.PayloadLost: ProblemKind(410, "payload-lost", "What was kept outside of the store is gone"),
    errors.JobNotFound: ProblemKind(404, "no-such-job", "There is no such job"),
    errors.UnknownTask: ProblemKind(404, "no-such-task", "There is no such task"),
    errors.OperationNotFound: ProblemKind(404, "no-such-operation", "There is no such operation"),
    errors.ErrorGroupNotFound: ProblemKind(404, "no-such-error", "There is no such group of errors"),
    errors.TooManyOperations: ProblemKind(429, "too-many-operations", "Too many operations are under way"),
    errors.HostNotFound: ProblemKind(404, "no-such-host", "There is no such host"),
    errors.ConnectionNotFound: ProblemKind(404, "no-such-connection", "There is no such connection"),
    errors.TooManySchedules: ProblemKind(422, "too-many-schedules", "The store keeps as many schedules as it may"),
    errors.TooManyRequests: ProblemKind(429, "too-many-host-requests", "Too many requests to this host are under way"),
    errors.ValueSealed: ProblemKind(409, "sealed", "This process has no key for what is sealed"),
    errors.NotHeld: ProblemKind(409, "not-held", "The caller does not hold this job"),
    NotPossible: REQUEST_STATUS[409],
    errors.Outdated: REQUEST_STATUS[412],
    errors.BodyTooLarge: REQUEST_STATUS[413],
    errors.IdempotencyError: ProblemKind(422, "idempotency", "This Idempotency-Key was used for another request"),
    errors.ArgumentError: ProblemKind(422, "arguments", "The arguments do not fit the task"),
    errors.UsageError: REQUEST_STATUS[422],
    errors.ConfigError: REQUEST_STATUS[422],
    errors.Busy: ProblemKind(503, "busy", "The server is busy"),
    errors.RateExceeded: ProblemKind(429, "too-many-requests", "The caller sends too many requests"),
    errors.Draining: ProblemKind(503, "draining", "This server is ending"),
    errors.StoreUnavailable: ProblemKind(503, "store-unavailable", "The store cannot be reached now"),
    errors.QueueFull: ProblemKind(503, "queue-full", "As many jobs wait in the queue as its bound allows"),
    errors.TenantFull: ProblemKind(503, "tenant-full", "As many jobs of the key wait as its bound allows"),
    errors.StoreFull: ProblemKind(507, "store-full", "The store has no room"),
    errors.StoreReadOnly: ProblemKind(503, "store-read-only", "The store cannot be written now"),
    errors.StoreError: ProblemKind(500, "store-error", "The store refuses this"),
    errors.TarryError: ProblemKind(500, "error", "The server cannot do this"),
}
"""How each error is answered: by its own class, else by the nearest of its bases that stands here."""
UNKNOWN = ProblemKind(500, "internal", "The server failed")
RETRY_AFTER = 1.0
"""Seconds, for errors that pass and do not say themselves when."""
_PASSING = (errors.StoreUnavailable, errors.StoreReadOnly)


def kind_of(error: Exception) -> ProblemKind | None:
    """How this error is answered; None: it is a fault of ours."""
    if isinstance(error, RequestError):
        return REQUEST_STATUS[error.status]
    return next((KINDS[base] for base in type(error).__mro__ if base in KINDS), None)


def problem_of(error: Exception, path: str = "") -> Problem:
    """The answer to a request that raised this error. Writes a fault of ours to the log, with its traceback."""
    kind = kind_of(error)
    if kind is None:
        log.error("%s failed", path or "a request", exc_info=error)
        kind, detail = UNKNOWN, "the server's log says why"
    else:
        detail = str(error) or kind.title
    passing = RETRY_AFTER if isinstance(error, _PASSING) else None
    return Problem(
        f"urn:tarry:problem:{kind.name}",
        kind.title,
        kind.status,
        detail,
        path,
        getattr(error, "field", None) or None,
        getattr(error, "retry_after", passing),
        getattr(error, "stored", None),
        getattr(getattr(error, "job", None), "id", None),
    )


def retry_after(problem: Problem) -> str | None:
    """The header Retry-After: whole seconds, 1 or more."""
    return None if problem.retry_after is None else str(max(1, math.ceil(problem.retry_after)))
