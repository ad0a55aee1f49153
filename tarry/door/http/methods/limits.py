"""Methods about limits: how many jobs run at once, and how many start in a period."""

from typing import Annotated

from msgspec import Meta, Struct

from tarry.door.http.method import ApiCall, ApiMethod, api_method
from tarry.door.http.problem import RequestError, checking
from tarry.door.identity.access import Scope
from tarry.keeper.limits import check_name, effective_limits, reset, set_by_hand
from tarry.keeper.records import LimitRecord, limit_record
from tarry.model.limit import QUEUE, parse_limit
from tarry.model.quantity import Short
from tarry.tasks.options import MAX_NAME

EVERY_QUEUE = "*"
"""Stands for all queues: a token that may use them all has this pattern, and no other pattern matches it."""


class LimitPath(Struct, frozen=True):
    """Names a limit."""

    limit: Annotated[str, Meta(max_length=MAX_NAME + len(QUEUE), pattern=r"^[^\x00]*$")]


class LimitList(Struct, frozen=True):
    """Limits, by name."""

    limits: list[LimitRecord]


class NewLimit(Struct, frozen=True, forbid_unknown_fields=True):
    """A limit to set by hand: one of both at least."""

    at_once: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """So many at once; 0 stops it."""
    rate: Short | None = None
    """So many starts in a period: `100/s`, `10/m`."""


@api_method("GET /v1/limits", Scope.READ)
def list_limits(call: ApiCall) -> LimitList:
    """Lists the limits in effect, and how far each is used."""
    return LimitList([record for record in _records(call) if call.allows(_queue(record.limit))])


@api_method("GET /v1/limits/{limit}", Scope.READ)
def get_limit(call: ApiCall, path: LimitPath) -> LimitRecord:
    """Shows a limit: `queue:NAME`, `task:NAME`, or `each:NAME` for each key of a task."""
    _check(call, path.limit)
    return _known(call, path.limit)


@api_method("PUT /v1/limits/{limit}", Scope.OPERATE)
def set_limit(call: ApiCall, path: LimitPath, body: NewLimit) -> LimitRecord:
    """Sets a limit on all hosts, in place of what code and settings say, until it is deleted."""
    _check(call, path.limit)
    with checking("rate"):
        limit = parse_limit(body.at_once, body.rate)
    if limit is None:
        raise RequestError("set to what? Send at_once, rate, or both", "body", 422)
    call.subject = f"{path.limit} = {limit}"
    set_by_hand(call.service.client.store, path.limit, limit)
    return _known(call, path.limit)


@api_method("DELETE /v1/limits/{limit}", Scope.OPERATE)
def reset_limit(call: ApiCall, path: LimitPath) -> None:
    """Brings back the limit of code and settings, if they have one."""
    _check(call, path.limit)
    call.service.sync_tasks()
    reset(call.service.client.store, path.limit, call.service.app.limits)


def _check(call: ApiCall, name: str) -> None:
    with checking("limit"):
        check_name(name)
    call.check(_queue(name))


def _queue(name: str) -> str:
    return name.removeprefix(QUEUE) if name.startswith(QUEUE) else EVERY_QUEUE


def _records(call: ApiCall) -> list[LimitRecord]:
    return [limit_record(one) for one in effective_limits(call.service.client.store)]


def _known(call: ApiCall, name: str) -> LimitRecord:
    found = next((record for record in _records(call) if record.limit == name), None)
    if found is None:
        raise RequestError(f"no limit {name}; GET /v1/limits lists them", "limit", 404)
    return found


METHODS: tuple[ApiMethod, ...] = (list_limits, get_limit, set_limit, reset_limit)
