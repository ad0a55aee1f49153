"""`tarry operations`, in words: changes of many jobs in the background."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from tarry.cli.operate.method_command import CommandCall, Subject, add_methods
from tarry.cli.shared.printing import format_clock, print_table
from tarry.client.operations.operation import OperationRecord
from tarry.model.duration import SECOND
from tarry.operate.operations import METHODS, OperationList, describe_filter
from tarry.terminal import print_line

_HEADS = ("id", "act", "jobs", "state", "matched", "changed", "created", "caller")


def _cells(one: OperationRecord) -> tuple[Any, ...]:
    created = format_clock(round(one.created * SECOND))
    return one.id, one.act, describe_filter(one.filter), one.state, one.matched, one.changed, created, one.caller or "-"


def _print_list(_: CommandCall, found: OperationList) -> None:
    print_table(_HEADS, [_cells(one) for one in found.operations])


def _print_each(_: CommandCall, names: Sequence[str], found: Sequence[OperationRecord]) -> None:
    print_table(_HEADS, [_cells(one) for one in found])
    for one in found:
        if one.trouble:
            print_line(f"{one.id}: {one.trouble}")


SUBJECT = Subject(
    METHODS,
    {"list": _print_list, "show": _print_each, "stop": _print_each},
    "list, show or stop changes of many jobs",
    """What `tarry jobs` with a filter, the console and POST /v1/operations have begun, and what ended in the last week.
    stop ends one after its present page of jobs; what it has changed stays changed.""",
    names="ID",
)
add = partial(add_methods, "operations", SUBJECT)
