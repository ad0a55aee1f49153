"""`tarry limits`, in words."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from tarry.cli.operate.method_command import CommandCall, Subject, add_methods
from tarry.cli.shared.printing import print_table
from tarry.keeper.keeper_records import LimitRecord
from tarry.model.limit import EACH
from tarry.operate.limits import METHODS, LimitList, get_limit
from tarry.terminal import escape_control, print_line


def _print_list(call: CommandCall, found: LimitList) -> None:
    # The limit whose keys these are.
    if call.subject:
        _print_keys(found)
        return
    rows = [
        (one.limit, _or_dash(one.at_once), one.rate or "-", _or_dash(one.running), _set_by(one)) for one in found.limits
    ]
    print_table(("limit", "at once", "rate", "running", "set by"), rows)


def _set_by(one: LimitRecord) -> str:
    return f"{one.set_by}; some keys have their own" if one.has_keys else one.set_by


def _or_dash(value: int | None) -> Any:
    return "-" if value is None else value


def _print_keys(found: LimitList) -> None:
    rows = [
        (
            one.limit,
            _or_dash(one.at_once),
            one.rate or "-",
            one.weight,
            one.running,
            one.waiting,
            _or_dash(one.max_waiting),
            "yes" if one.paused else "-",
        )
        for one in found.limits
    ]
    print_table(("key", "at once", "rate", "weight", "running", "waiting", "may wait", "paused"), rows)


def _print(_: CommandCall, names: Sequence[str], found: Sequence[LimitRecord | None]) -> None:
    for name, one in zip(names, found, strict=True):
        print_line(f"{name}: {'no limit' if one is None else _describe(one)}")


def _print_new(call: CommandCall, names: Sequence[str], found: Sequence[LimitRecord | None]) -> None:
    _print(call, names, found)
    # Those of single keys: other tasks of the same names are known to nobody here, so it is no error.
    tasks = {one.limit.partition("=")[0].removeprefix(EACH) for one in found if one and one.waiting is not None}
    if unknown := tasks - set(call.app.tasks):
        for task in sorted(unknown - {tally.task for tally in call.client.store.counts()}):
            print_line(
                f"tarry: no task {escape_control(task)} is known here, and no job of it is kept: "
                "what was set holds once there is one",
                file=sys.stderr,
            )


def _describe(one: LimitRecord) -> str:
    at_once = "" if one.at_once is None else f"{one.at_once} at once"
    weight = f"weight {one.weight}" if (one.weight or 1) != 1 else ""
    used = "" if one.waiting is None else f"{one.running} running, {one.waiting} waiting"
    bound = "" if one.max_waiting is None else f"at most {one.max_waiting} waiting"
    numbers = "paused" if one.paused else "", at_once, one.rate, weight, bound, used
    return ", ".join(filter(None, numbers)) or "no number"


SUBJECT = Subject(
    METHODS,
    {
        "list": _print_list,
        "show": _print,
        "set": _print_new,
        "reset": _print,
        "pause": _print_new,
        "resume": _print,
    },
    "list, show, set or reset how many jobs run at once, and start in a period; also of one key, which may be paused",
    options={"at_once": "limit", "list limit": "most"},
    names="queue:NAME, task:NAME, each:NAME, or each:NAME=KEY",
    show=get_limit,
)
add = partial(add_methods, "limits", SUBJECT)
