"""The errors that a server answers with, as the exceptions that an app would raise."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec import Struct

from tarry import errors
from tarry.model.checks.decoders import json_decoder


class ServerAnswer(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes


class ServerProblem(Struct):
    """What of a problem (RFC 9457) a client needs."""

    type: str = ""
    title: str = ""
    detail: str = ""
    retry_after: float | None = None
    stored: bool | None = None


class StateConflict(errors.TarryError):
    """The state of the job does not allow this."""


_BY_NAME: dict[str, Callable[[str], Exception]] = {
    "not-authenticated": errors.NotAuthenticated,
    "not-allowed": errors.NotAllowed,
    "no-such-path": errors.ConfigError,
    "no-such-job": errors.JobNotFound,
    "no-such-task": errors.UnknownTask,
    "conflict": StateConflict,
    "too-large": errors.BodyTooLarge,
    "idempotency": errors.IdempotencyError,
    "arguments": errors.ArgumentError,
    "wrong-value": errors.ArgumentError,
    "sealed": errors.ValueSealed,
    "payload-lost": errors.PayloadLost,
    "too-many-schedules": errors.TooManySchedules,
    "busy": errors.Busy,
    "too-many-requests": errors.RateExceeded,
    "draining": errors.Draining,
    "store-unavailable": errors.StoreUnavailable,
    "queue-full": lambda said: errors.QueueFull("", 0, said=said),
    "tenant-full": lambda said: errors.TenantFull("", 0, said=said),
    "store-full": errors.StoreFull,
    "store-read-only": errors.StoreReadOnly,
    "store-error": errors.StoreError,
}
_decode = json_decoder(ServerProblem).decode


def error_of(problem: ServerProblem, status: int) -> Exception:
    """The exception for a problem; TarryError for one of an unknown kind."""
    said = problem.detail or problem.title or f"the server answered {status}"
    error = _BY_NAME.get(problem.type.rpartition(":")[2], errors.TarryError)(said)
    if isinstance(error, errors.Busy | errors.Draining | errors.QueueFull) and problem.retry_after is not None:
        error.retry_after = problem.retry_after
    if isinstance(error, errors.StoreError) and problem.stored is not None:
        error.stored = problem.stored
    return error


def error_of_answer(answer: ServerAnswer, url: str) -> Exception:
    """The same for an answer. url: of the server, for an answer that is not of tarry."""
    try:
        problem = _decode(answer.body)
    except msgspec.DecodeError:
        problem = ServerProblem()
    if not problem.type.startswith("urn:tarry:"):
        # A proxy in between, or another program.
        text = f"{url} answered {answer.status}, and not as tarry does: is that the right address?"
        return errors.StoreUnavailable(text) if answer.status >= 500 else errors.ConfigError(text)
    return error_of(problem, answer.status)
