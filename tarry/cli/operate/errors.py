"""`tarry errors`, in words."""

from collections.abc import Mapping, Sequence
from functools import partial

from tarry.cli.operate.method_command import CommandCall, Subject, add_methods
from tarry.cli.shared.printing import format_ago, format_clock, print_table
from tarry.client.operations.operation import OperationRecord
from tarry.model.duration import SECOND
from tarry.model.quantity import quantity
from tarry.operate.errors import METHODS, ErrorList
from tarry.store.queries.error_reading import ErrorGroupRecord
from tarry.terminal import print_line, sparkline

_MOST_NAMES, _MOST_MESSAGE = 3, 60


def _print_list(call: CommandCall, found: ErrorList) -> None:
    now = call.client.clock.now()
    heads = ("id", "count", "last", "began", "24 hours", "error", "place", "tasks")
    print_table(heads, [_cells(one, now) for one in found.errors])
    if len(found.errors) < found.total:
        print_line(f"{len(found.errors)} of {found.total}: --limit shows more")


def _cells(one: ErrorGroupRecord, now: int) -> tuple[object, ...]:
    last, first = (format_ago(round(at * SECOND), now) for at in (one.last, one.first))
    if not one.id:
        return "-", one.count, last, "-", sparkline(one.hours), "all others: too many kinds", "", ""
    error = f"{one.type}: {one.message}" if one.message else one.type
    muted = " (muted)" if one.is_muted else ""
    return (
        one.id,
        one.count,
        last,
        first,
        sparkline(one.hours),
        (error if len(error) <= _MOST_MESSAGE else f"{error[: _MOST_MESSAGE - 1]}…") + muted,
        one.place,
        _names(one.tasks),
    )


def _names(counts: Mapping[str, int]) -> str:
    names = [name or "others" for name in counts]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _print_each(call: CommandCall, names: Sequence[str], found: Sequence[ErrorGroupRecord]) -> None:
    for one in found:
        rows = [
            ("message", one.message),
            ("place", one.place or "not known"),
            ("count", f"{one.count:,}"),
            ("first", f"{format_clock(round(one.first * SECOND))}, on {one.began_on or 'a host that is not known'}"),
            ("deploy", _deploy(one)),
            ("last", format_clock(round(one.last * SECOND))),
            ("tasks", _counts(one.tasks)),
            ("queues", _counts(one.queues)),
            ("a job", f"{one.job}: tarry jobs show {one.job}" if one.job else "-"),
            ("muted", "yes" if one.is_muted else "no"),
            ("24 hours", sparkline(one.hours)),
        ]
        print_table((one.id, one.type), rows)


def _deploy(one: ErrorGroupRecord) -> str:
    if one.deploy is None:
        return "not known"
    began = format_clock(round(one.deploy.at * SECOND))
    return f"{one.deploy.version or one.deploy.kind}, generation {one.deploy.generation}, since {began}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name or 'others'} {count:,}" for name, count in counts.items())


def _print_done(call: CommandCall, names: Sequence[str], found: Sequence[OperationRecord]) -> None:
    for name, one in zip(names, found, strict=True):
        what = f"{quantity(one.matched)} would be changed" if one.dry_run else f"{quantity(one.changed)} changed"
        print_line(f"{name}: {one.act}: {what}")


def _print_muted(_: CommandCall, names: Sequence[str], found: Sequence[ErrorGroupRecord]) -> None:
    for one in found:
        print_line(f"{one.id}: {'muted' if one.is_muted else 'not muted'}")


SUBJECT = Subject(
    METHODS,
    {
        "list": _print_list,
        "show": _print_each,
        "retry": _print_done,
        "delete": _print_done,
        "mute": _print_muted,
        "unmute": _print_muted,
    },
    "list or show failed attempts in groups of equal errors; retry or delete the dead jobs of a group",
    """Errors are equal if class, place in your code and message agree, but for numbers, ids and quoted parts. A group
    is kept for a month after its last error. mute ends the alerts about it.""",
    names="ID",
)
add = partial(add_methods, "errors", SUBJECT)
