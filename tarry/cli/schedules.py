"""`tarry schedules`: lists, shows, pauses, resumes and runs the schedules of the app."""

import argparse
from typing import Any

from tarry.cli.printing import format_ago, format_clock, print_json, print_table
from tarry.client.client import Client
from tarry.errors import TarryError, UsageError
from tarry.keeper import schedule_state
from tarry.keeper.cron import run_now, schedules_of
from tarry.keeper.records import GONE, ScheduledRunRecord, ScheduleRecord, schedule_detail, schedule_records
from tarry.keeper.schedule_runs import LEFT_OUT
from tarry.model.duration import SECOND, format_duration
from tarry.model.nearest import did_you_mean
from tarry.model.schedule import Schedule
from tarry.process.loading import Setup
from tarry.terminal import harmless, say

WORDS = {LEFT_OUT: "left out", GONE: "no longer kept"}
"""How states of runs are shown that are no states of jobs."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "schedules",
        help="list, show, pause, resume or run schedules",
        description="""The schedules of the app's tasks. show tells what became of the last ticks. A paused one rests
        on all hosts, also after a restart; what falls into the pause is not made up for. run enqueues the call now and
        moves no tick.""",
    )
    command.add_argument("action", nargs="?", choices=("list", "show", "pause", "resume", "run"), default="list")
    command.add_argument("names", nargs="*", metavar="NAME")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 0 once done."""
    setup = Setup.of(args)
    schedules = schedules_of(setup.app.tasks, setup.config.named_calendars)
    if args.action == "list":
        if args.names:
            raise UsageError("list takes no names; `tarry schedules` shows them all")
        return _list(setup.client, schedules, args.json)
    named = _find_schedules(schedules, args.names, args.action)
    if args.action == "show":
        return _show(setup.client, named, args.json)
    if args.action == "run":
        return _run(setup.client, named, args.json)
    change, done = (schedule_state.pause, "paused") if args.action == "pause" else (schedule_state.resume, "resumed")
    for schedule in named:
        change(setup.client.store, schedule, setup.client.clock.now())
    if args.json:
        print_json({done: args.names})
    else:
        say(f"{', '.join(args.names)} {done}")
    return 0


def _find_schedules(schedules: dict[str, Schedule], names: list[str], action: str) -> list[Schedule]:
    """The schedules of these names; an error if one is unknown, before anything is changed."""
    if not names:
        raise UsageError(f"{action} which schedule? tarry schedules {action} NAME")
    for name in names:
        if name not in schedules:
            known = ", ".join(sorted(schedules)) or "none"
            raise TarryError(f"no schedule {name!r} in this app{did_you_mean(name, schedules) or '; it has: ' + known}")
    return [schedules[name] for name in names]


def _run(client: Client, schedules: list[Schedule], json: bool) -> int:
    ids = {schedule.name: run_now(client, schedule).id for schedule in schedules}
    if json:
        print_json(ids)
    else:
        say("\n".join(ids.values()))
    return 0


def _list(client: Client, schedules: dict[str, Schedule], json: bool) -> int:
    now = client.clock.now()
    rows = schedule_records(client.store, schedules, now)
    if json:
        print_json(rows)
    else:
        heads = ("name", "task", "cron", "zone", "days", "next", "", "last", "")
        print_table(heads, [_cells(row, now) for row in rows])
    return 0


def _show(client: Client, schedules: list[Schedule], json: bool) -> int:
    now = client.clock.now()
    shown = [schedule_detail(client.store, schedule, now) for schedule in schedules]
    if json:
        print_json(shown)
        return 0
    for one in shown:
        facts = zip(("name", "task", "cron", "zone", "days", "next", "", "last", ""), _cells(one, now), strict=True)
        for name, value in facts:
            if value:
                say(f"{name:6} {harmless(str(value))}")
        print_table(("tick", "state", "delay", "took", "job"), [_run_cells(run) for run in one.runs])
    return 0


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
        "paused" if row.paused else "",
    )
