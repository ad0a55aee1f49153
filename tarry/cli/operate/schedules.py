"""`tarry schedules`, in words."""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from tarry.cli.operate.method_command import CommandCall, Subject, Words, add_methods, print_done
from tarry.cli.shared.printing import format_ago, format_clock, print_table, read_arguments
from tarry.errors import UsageError
from tarry.keeper.keeper_records import GONE, ScheduleDetail, ScheduledRunRecord, ScheduleRecord
from tarry.model.duration import SECOND, format_duration
from tarry.model.schedules.schedule import LEFT_OUT
from tarry.operate.schedules import METHODS, ScheduleList, ScheduleRun
from tarry.terminal import escape_control, print_line

WORDS = {LEFT_OUT: "left out", GONE: "no longer kept"}
"""How states of runs are shown that are no states of jobs."""
_HEADS = ("name", "task", "cron", "zone", "days", "next", "", "last", "", "")


def _print_list(call: CommandCall, found: ScheduleList) -> None:
    now = call.client.clock.now()
    print_table(_HEADS, [_cells(row, now) for row in found.schedules])


def _print_details(call: CommandCall, _: Sequence[str], found: Sequence[ScheduleDetail]) -> None:
    for one in found:
        for name, value in zip(_HEADS, _cells(one, call.client.clock.now()), strict=True):
            if value:
                print_line(f"{name:6} {escape_control(str(value))}")
        print_table(("tick", "state", "delay", "took", "job"), [_run_cells(run) for run in one.runs])


def _print_ids(_: CommandCall, names: Sequence[str], found: Sequence[ScheduleRun]) -> None:
    print_line("\n".join(one.id for one in found))


def _print_put(call: CommandCall, names: Sequence[str], found: Sequence[ScheduleRecord]) -> None:
    for one in found:
        when = "paused" if one.next is None else f"next {format_clock(round(one.next * SECOND))}"
        print_line(f"{escape_control(one.name)} put; {when}")


def _read_put(args: argparse.Namespace) -> Words:
    """NAME TASK ARGS..."""
    if len(args.names) < 2:
        raise UsageError('put what? tarry schedules put NAME TASK [ARGS] --cron "0 7 * * 1-5"')
    name, task, *texts = args.names
    return [name], {"task": task, "args": read_arguments(texts)}


def _run_cells(run: ScheduledRunRecord) -> tuple[str, ...]:
    state = WORDS.get(run.state, run.state) + (f" ({run.ticks} ticks)" if run.ticks > 1 else "")
    lasting = (
        "-" if seconds is None else format_duration(round(seconds * SECOND)) for seconds in (run.delay, run.duration)
    )
    return format_clock(round(run.tick * SECOND)), state, *lasting, run.job or "-"


def _cells(row: ScheduleRecord, now: int) -> tuple[Any, ...]:
    next_tick, last = (None if moment is None else round(moment * SECOND) for moment in (row.next, row.last))
    return (
        row.name,
        row.task,
        row.cron,
        row.zone,
        row.calendar,
        format_clock(next_tick or 0),
        "" if next_tick is None else format_ago(next_tick, now),
        format_clock(last or 0),
        "paused" if row.paused else row.problem and "cannot run",
        "" if row.source == "code" else row.source,
    )


SUBJECT = Subject(
    METHODS,
    {
        "list": _print_list,
        "show": _print_details,
        "pause": print_done("paused"),
        "resume": print_done("resumed"),
        "run": _print_ids,
        "put": _print_put,
        "delete": print_done("deleted"),
    },
    "list, show, put, delete, pause, resume or run schedules",
    """The schedules of the app's tasks, and those that were put while it ran. show tells what became of the last ticks.
    put NAME TASK [ARGS] keeps one in the store; ARGS are as those of `tarry enqueue`. A paused one rests on all hosts,
    also after a restart; what falls into the pause is not made up for. run enqueues the call now and moves no tick.""",
    needs_app=True,
    words={"put": _read_put},
    worded=("task", "args", "labels"),
)
add = partial(add_methods, "schedules", SUBJECT)
