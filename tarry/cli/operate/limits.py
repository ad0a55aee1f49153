"""`tarry limits`, in words."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from tarry.cli.operate.method_command import CommandCall, Subject, add_methods
from tarry.cli.shared.printing import print_table
from tarry.keeper.keeper_records import LimitRecord
from tarry.operate.limits import METHODS, LimitList, get_limit
from tarry.terminal import print_line


def _print_list(_: CommandCall, found: LimitList) -> None:
    rows = [
        (one.limit, _or_dash(one.at_once), one.rate or "-", _or_dash(one.running), one.set_by) for one in found.limits
    ]
    print_table(("limit", "at once", "rate", "running", "set by"), rows)


def _or_dash(value: int | None) -> Any:
    return "-" if value is None else value


def _print(_: CommandCall, names: Sequence[str], found: Sequence[LimitRecord | None]) -> None:
    for name, one in zip(names, found, strict=True):
        print_line(f"{name}: {'no limit' if one is None else _describe(one)}")


def _describe(one: LimitRecord) -> str:
    at_once = "" if one.at_once is None else f"{one.at_once} at once"
    return ", ".join(filter(None, (at_once, one.rate)))


SUBJECT = Subject(
    METHODS,
    {"list": _print_list, "show": _print, "set": _print, "reset": _print},
    "list, show, set or reset how many jobs run at once, and start in a period",
    options={"at_once": "limit"},
    names="queue:NAME, task:NAME, or each:NAME",
    show=get_limit,
)
add = partial(add_methods, "limits", SUBJECT)
