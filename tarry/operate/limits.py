"""Methods about limits: how many jobs run at once, and how many start in a period."""

from typing import Annotated

from msgspec import Meta, Struct

from tarry.keeper.keeper_records import LimitRecord, limit_record
from tarry.keeper.limits import check_name, effective_limits, reset, set_by_hand
from tarry.model.limit import QUEUE, parse_limit
from tarry.model.quantity import Short
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.method import method, methods_of
from tarry.operate.problem import RequestError, checking
from tarry.tasks.arguments.options import MAX_NAME

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


def _check(call: MethodCall, path: LimitPath, body: object = None) -> None:
    with checking("limit"):
        check_name(path.limit)
    call.check(_queue(path.limit))


@method("GET /v1/limits", Scope.READ, command="limits list")
def list_limits(call: MethodCall) -> LimitList:
    """Lists the limits in effect, and how far each is used."""
    return LimitList([record for record in _records(call) if call.allows(_queue(record.limit))])


@method("GET /v1/limits/{limit}", Scope.READ, command="limits show")
def get_limit(call: MethodCall, path: LimitPath) -> LimitRecord:
    """Shows a limit: `queue:NAME`, `task:NAME`, or `each:NAME` for each key of a task."""
    _check(call, path)
    return _known(call, path.limit)


@method("PUT /v1/limits/{limit}", Scope.OPERATE, command="limits set", check=_check)
def set_limit(call: MethodCall, path: LimitPath, body: NewLimit) -> LimitRecord:
    """Sets a limit on all hosts, in place of what code and settings say, until it is deleted."""
    _check(call, path)
    with checking("rate"):
        limit = parse_limit(body.at_once, body.rate)
    if limit is None:
        raise RequestError(f"set to what? Give {call.option('at_once')}, {call.option('rate')}, or both", "body", 422)
    call.subject = f"{path.limit} = {limit}"
    set_by_hand(call.client.store, path.limit, limit)
    return _known(call, path.limit)


@method("DELETE /v1/limits/{limit}", Scope.OPERATE, command="limits reset", check=_check)
def reset_limit(call: MethodCall, path: LimitPath) -> None:
    """Brings back the limit of code and settings, if they have one."""
    _check(call, path)
    call.sync_tasks()
    reset(call.client.store, path.limit, call.app.limits)


def _queue(name: str) -> str:
    return name.removeprefix(QUEUE) if name.startswith(QUEUE) else EVERY_QUEUE


def _records(call: MethodCall) -> list[LimitRecord]:
    return [limit_record(one) for one in effective_limits(call.client.store)]


def _known(call: MethodCall, name: str) -> LimitRecord:
    found = next((record for record in _records(call) if record.limit == name), None)
    if found is None:
        raise RequestError(f"no limit {name}; {call.way_to(list_limits)} lists them", "limit", 404)
    return found


METHODS = methods_of(__name__)
