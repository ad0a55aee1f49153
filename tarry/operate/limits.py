"""Methods about limits: how many jobs run at once, and how many start in a period; also for one key of a task."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.keeper.keeper_records import LimitRecord, limit_record
from tarry.keeper.limits import check_name, effective_limits, reset, set_by_hand
from tarry.model.bound import MaxWaiting
from tarry.model.limit import EACH, QUEUE, TASK, KeyLimit, Limit, Weight, parse_limit
from tarry.model.quantity import Short
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.method import method, methods_of
from tarry.operate.problem import RequestError, checking
from tarry.tasks.arguments.options import MAX_NAME
from tarry.tasks.task_limits import check_number_of_key, key_lane, lane_of_key

if TYPE_CHECKING:
    from tarry.client.limits.tenant_facts import TenantFacts

_MAX_PATH = 2 * MAX_NAME + len(QUEUE) + 1
_MOST_KEYS = 100
"""So many keys are listed where nobody says how many."""
EVERY_QUEUE = "*"
"""Stands for all queues: a token that may use them all has this pattern, and no other pattern matches it."""


class LimitPath(Struct, frozen=True):
    """Names a limit, or one key of a limit for each key: `each:NAME=KEY`."""

    limit: Annotated[str, Meta(max_length=_MAX_PATH, pattern=r"^[^\x00]*$")]


class LimitList(Struct, frozen=True):
    """Limits, by name."""

    limits: list[LimitRecord]


class NewLimit(Struct, frozen=True, forbid_unknown_fields=True):
    """A limit to set by hand: one of these at least."""

    at_once: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """So many at once; 0 stops it."""
    rate: Short | None = None
    """So many starts in a period: `100/s`, `10/m`."""
    weight: Weight | None = None
    """Of `each:NAME`, and of one key: so many starts, 1 to 1,000, while other keys have as many as theirs say."""
    max_waiting: MaxWaiting | None = None
    """Of one key: so many of its jobs may wait, and one more is refused; 0 takes none."""


class LimitsQuery(Struct, frozen=True):
    """Which limits."""

    of: Annotated[str, Meta(max_length=_MAX_PATH)] | None = None
    """Those of single keys beside this one, `each:NAME`: the keys that have numbers of their own."""
    after: Annotated[str, Meta(max_length=MAX_NAME)] | None = None
    """Of the keys, only those behind this one, by name."""
    limit: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """At most so many keys; without it 100."""


class _NamedLimit(Struct, frozen=True):
    """What a path names. task, lane: of one key; lane None: no key."""

    limit: str
    task: str = ""
    lane: str | None = None


def _target(call: MethodCall, name: str) -> _NamedLimit:
    """RequestError, also if the caller may not use it."""
    with checking("limit"):
        check_name(name)
    call.check(_queue(name))
    if "=" not in name or name.startswith(QUEUE) or name in (known := call.client.store.limits()):
        return _NamedLimit(name)
    limit = _limit_before_key(call, name, known)
    key = name[len(limit) + 1 :]
    if not name.startswith(EACH):
        raise RequestError(f"{limit} has no keys; those of the task are {EACH}{name.removeprefix(TASK)}", "limit", 422)
    with checking("limit"):
        return _NamedLimit(limit, check_name(limit).removeprefix(EACH), key_lane(limit, key))


def _limit_before_key(call: MethodCall, name: str, known: Iterable[str]) -> str:
    """The limit in the name of a key. known: those that are set."""
    # The name of a task may have the sign, too; also one that has no limit yet.
    limits = (*known, *(kind + task for task in list(call.app.tasks) for kind in (TASK, EACH)))
    return max((one for one in limits if name.startswith(f"{one}=")), key=len, default=name.partition("=")[0])


def _check(call: MethodCall, path: LimitPath) -> None:
    _target(call, path.limit)


def _check_new(call: MethodCall, path: LimitPath, body: NewLimit) -> None:
    target = _target(call, path.limit)
    _check_fits(call, target, body.at_once)
    if body.weight is not None and not path.limit.startswith(EACH):
        raise RequestError(
            f"{path.limit} has no keys that take turns: {call.option('weight')} is for {EACH}NAME", "weight", 422
        )
    if body.max_waiting is not None and target.lane is None:
        raise RequestError(
            f"{path.limit} is no key: {call.option('max_waiting')} is for {EACH}NAME=KEY; for each key the task itself"
            " says it, for a queue [queues.NAME] does",
            "max_waiting",
            422,
        )


def _check_key(call: MethodCall, path: LimitPath) -> None:
    _key(call, path.limit)


def _check_pause(call: MethodCall, path: LimitPath) -> None:
    _check_fits(call, _key(call, path.limit))


def _check_fits(call: MethodCall, target: _NamedLimit, at_once: int | None = None) -> None:
    """RequestError: the task has no keys, so that nothing would be held; or a key of it may not have this number. Tasks
    of other apps are not known here."""
    if target.lane is None:
        return
    call.sync_tasks()
    if task := call.app.tasks.get(target.task):
        with checking("limit"):
            lane_of_key(target.task, task.lane, target.lane)
            check_number_of_key(target.task, at_once, keeps_order=task.keeps_order)


def _key(call: MethodCall, name: str) -> _NamedLimit:
    """What a path names that has to name a key; RequestError."""
    target = _target(call, name)
    if target.lane is None:
        raise RequestError(
            f"{name} is no key: {EACH}NAME=KEY; {call.way_to(set_limit)} to 0 at once stops a limit", "limit", 422
        )
    return target


@method("GET /v1/limits", Scope.READ, command="limits list")
def list_limits(call: MethodCall, query: LimitsQuery) -> LimitList:
    """Lists the limits in effect, and how far each is used; or the keys of one that have numbers of their own."""
    if query.of is None:
        for field in ("after", "limit"):
            if getattr(query, field) is not None:
                raise RequestError(f"{call.option(field)} is about keys: give {call.option('of')} too", field, 422)
        return LimitList([record for record in _records(call) if call.allows(_queue(record.limit))])
    target = _target(call, query.of)
    if not target.limit.startswith(EACH) or target.lane is not None:
        raise RequestError(f"{query.of} has no keys; they are those of {EACH}NAME", "of", 422)
    call.subject = target.limit
    from tarry.client.limits.tenant_facts import tenants_with_own  # noqa: PLC0415 - few look at single keys

    found = tenants_with_own(call.client.store, target.limit.removeprefix(EACH), query.after, query.limit or _MOST_KEYS)
    return LimitList([_key_record(target.limit, lane, facts) for lane, facts in found.items()])


@method("GET /v1/limits/{limit}", Scope.READ, command="limits show")
def get_limit(call: MethodCall, path: LimitPath) -> LimitRecord:
    """Shows a limit: `queue:NAME`, `task:NAME`, `each:NAME` for each key of a task, or `each:NAME=KEY` for one key."""
    return _record(call, _target(call, path.limit))


@method("PUT /v1/limits/{limit}", Scope.OPERATE, command="limits set", check=_check_new)
def set_limit(call: MethodCall, path: LimitPath, body: NewLimit) -> LimitRecord:
    """Sets a limit on all hosts, in place of what code and settings say, until it is deleted.

    For one key, `each:NAME=KEY`, what is left out is as for each key."""
    target = _target(call, path.limit)
    with checking("rate"):
        limit = parse_limit(body.at_once, body.rate, body.weight)
    if limit is None and body.max_waiting is None:
        ways = ", ".join(map(call.option, ("at_once", "rate", "weight")))
        raise RequestError(f"set to what? Give {ways} or {call.option('max_waiting')}", "body", 422)
    _check_new(call, path, body)
    call.subject = f"{path.limit} = {_in_words(limit, body.max_waiting)}"
    if target.lane is not None:
        _set_key(call, target, limit, body)
    elif limit is not None:
        set_by_hand(call.client.store, path.limit, limit)
    return _record(call, target)


@method("POST /v1/limits/{limit}/pause", Scope.OPERATE, command="limits pause", check=_check_pause)
def pause_limit_key(call: MethodCall, path: LimitPath) -> LimitRecord:
    """Holds back the jobs of one key of a task, `each:NAME=KEY`, until it is resumed. Those that run go on."""
    return _set_paused(call, path, is_paused=True)


@method("POST /v1/limits/{limit}/resume", Scope.OPERATE, command="limits resume", check=_check_key)
def resume_limit_key(call: MethodCall, path: LimitPath) -> LimitRecord:
    """Lets the jobs of one key of a task start again, with the numbers that it had."""
    return _set_paused(call, path, is_paused=False)


@method("DELETE /v1/limits/{limit}", Scope.OPERATE, command="limits reset", check=_check)
def reset_limit(call: MethodCall, path: LimitPath) -> None:
    """Brings back the limit of code and settings, if they have one; for one key, that for each key."""
    target = _target(call, path.limit)
    if target.lane is not None:
        from tarry.client.limits.key_numbers import reset_key  # noqa: PLC0415 - few look at single keys

        reset_key(call.client.store, target.task, target.lane)
        call.client.queues.read_again()
        return
    call.sync_tasks()
    reset(call.client.store, path.limit, call.app.limits)


def _set_paused(call: MethodCall, path: LimitPath, is_paused: bool) -> LimitRecord:
    target = _key(call, path.limit)
    if is_paused:
        _check_fits(call, target)
    _change_key(call, target, lambda was: replace(was, is_paused=is_paused))
    return _record(call, target)


def _in_words(limit: Limit | None, max_waiting: int | None) -> str:
    waiting = "" if max_waiting is None else f"at most {max_waiting} waiting"
    return ", ".join(filter(None, ("" if limit is None else str(limit), waiting)))


def _set_key(call: MethodCall, target: _NamedLimit, limit: Limit | None, body: NewLimit) -> None:
    from tarry.client.limits.key_numbers import set_numbers  # noqa: PLC0415 - as above

    with checking("limit"):
        set_numbers(
            call.client.store,
            target.task,
            target.lane or "",
            limit,
            has_rate=body.rate is not None,
            weight=body.weight,
            max_waiting=body.max_waiting,
        )
    call.client.queues.read_again()


def _change_key(call: MethodCall, target: _NamedLimit, change: Callable[[KeyLimit], KeyLimit]) -> None:
    from tarry.client.limits.key_numbers import change_key_limit  # noqa: PLC0415 - as above

    with checking("weight"):
        change_key_limit(call.client.store, target.task, target.lane or "", change)


def _queue(name: str) -> str:
    return name.removeprefix(QUEUE) if name.startswith(QUEUE) else EVERY_QUEUE


def _records(call: MethodCall) -> list[LimitRecord]:
    return [limit_record(one) for one in effective_limits(call.client.store)]


def _record(call: MethodCall, target: _NamedLimit) -> LimitRecord:
    if target.lane is not None:
        from tarry.client.limits.tenant_facts import tenant_facts  # noqa: PLC0415 - as above

        return _key_record(target.limit, target.lane, tenant_facts(call.client.store, target.task, target.lane))
    found = next((record for record in _records(call) if record.limit == target.limit), None)
    if found is None:
        raise RequestError(f"no limit {target.limit}; {call.way_to(list_limits)} lists them", "limit", 404)
    return found


def _key_record(limit: str, lane: str, facts: "TenantFacts") -> LimitRecord:
    return LimitRecord(
        f"{limit}={lane}",
        facts.limit,
        facts.rate,
        facts.running,
        "hand" if facts.has_own else "code",
        paused=facts.is_paused,
        waiting=facts.waiting,
        oldest=facts.oldest,
        weight=facts.weight,
        max_waiting=facts.max_waiting,
    )


METHODS = methods_of(__name__)
