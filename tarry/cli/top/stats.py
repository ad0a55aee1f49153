"""`tarry stats`: what was put, done, failed, dead by task and queue: today, by hour, by day, in all."""

import argparse
import contextlib
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from tarry.cli.operate.method_command import CommandCall, Subject
from tarry.cli.shared.printing import format_moment, partial_answer, print_json, print_table, zone_at
from tarry.errors import StoreError, UsageError
from tarry.model.duration import SECOND, format_duration
from tarry.operate.history import HistoryAnswer, HistoryQuery, TotalsAnswer, WorkQuery, get_history, get_totals
from tarry.operate.method import Method
from tarry.operate.problem import RequestError
from tarry.process.loading import CommandContext
from tarry.store.queries.deploy_records import DeployRecord, version_text
from tarry.store.queries.history_reading import Figures, HistoryPoint, Percentiles, TaskFigures, bring_up_to_date
from tarry.terminal import escape_control, print_line, sparkline

STATUSES_SHOWN = 10
"""The HTTP statuses that came most often."""
_MOST_COLUMNS = 72
"""Characters of a line of bars: of more points several share one."""
_COUNTS = ("put", "done", "failed", "dead", "cancelled", "expired")
_HEADS = (*_COUNTS, "waited p50", "p99", "ran p50", "p99")
_SUBJECT = Subject((get_history, get_totals), {}, "what was put, done, failed: today, by hour, by day, in all")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    stats = commands.add_parser("stats", help=_SUBJECT.help)
    which = stats.add_mutually_exclusive_group()
    which.add_argument("--hours", action="store_true", help="the last 24 hours, by hour")
    which.add_argument("--days", action="store_true", help="the last 30 days, by day")
    which.add_argument("--total", action="store_true", help="in all, since the store began to count")
    stats.add_argument(
        "--since", metavar="WHEN", help="from when on: 2h, 2026-11-24T16:00Z, or deploy: since the last deploy began"
    )
    stats.add_argument("--queue", metavar="NAME", help="only this queue")
    stats.add_argument("--task", metavar="NAME", help="only this task")
    stats.set_defaults(run=run_stats, methods={one.command: one for one in _SUBJECT.methods})


def run_stats(args: argparse.Namespace) -> int:
    """Status 0 once shown."""
    if args.total and args.since:
        raise UsageError("--total is of all time: leave out --since")
    setup = CommandContext.of(args)
    store = setup.client.store
    # What cannot be summed up now, since the store is full or read-only, is seen later.
    with contextlib.suppress(StoreError):
        bring_up_to_date(store.history, store.time())
    method = get_totals if args.total else get_history
    query = WorkQuery(args.queue, args.task) if args.total else _query(args, store.time())
    call = CommandCall(setup, args, method, _SUBJECT, "")
    found = partial_answer(partial(_ask, method, call, query))
    if args.json:
        print_json(found)
    elif isinstance(found, TotalsAnswer):
        _print_rows(found.ever.tasks)
    elif args.hours or args.days:
        _print_points(found, "%Y-%m-%d" if args.days else "%m-%d %H:%M")
    else:
        _print_tasks(found)
    return 0


def _ask(method: Method, call: CommandCall, query: WorkQuery | HistoryQuery) -> Any:
    try:
        return method.handler(call, query)
    except RequestError as error:
        # Of all fields only `since` may be wrong.
        raise UsageError(str(error).removeprefix("query: ").replace("since", "--since", 1)) from None


def _query(args: argparse.Namespace, now: int) -> HistoryQuery:
    resolution: Any = "day" if args.days else "hour" if args.hours else None
    if args.since:
        return HistoryQuery(resolution, since=args.since, queue=args.queue, task=args.task)
    start = None
    if resolution is None:
        # Today begins at midnight where the command runs, and days of the history begin at that of UTC.
        today = time.localtime(now / SECOND)
        start = time.mktime((today.tm_year, today.tm_mon, today.tm_mday, 0, 0, 0, 0, 0, -1))
    return HistoryQuery(resolution, start, queue=args.queue, task=args.task)


def _print_tasks(found: HistoryAnswer) -> None:
    _print_rows(found.tasks)
    if found.tasks:
        _print_lines(found)


def _print_rows(tasks: Sequence[TaskFigures]) -> None:
    rows = [(one.queue or "others", one.task or "others", *_cells(one)) for one in tasks]
    print_table(("queue", "task", *_HEADS), rows)


def _print_points(found: HistoryAnswer, form: str) -> None:
    rows: list[tuple[Any, ...]] = [
        (format_moment(one.start, form), *_cells(one), *_sample(one)) for one in found.points
    ]
    heads = [f"from ({zone_at(found.points[-1].start if found.points else 0)})", *_HEADS, "ready", "oldest"]
    if found.deploys:
        heads.append("deployed")
        rows = [
            (*row, version_text(_deploys_in(found, [point]))) for row, point in zip(rows, found.points, strict=True)
        ]
    print_table(heads, rows)
    _print_lines(found)


def _deploys_in(found: HistoryAnswer, points: Sequence[HistoryPoint]) -> list[DeployRecord]:
    return [one for one in found.deploys if points[0].start <= one.at < points[-1].start + found.step]


def _sample(one: HistoryPoint) -> tuple[str, str]:
    """The highest samples of a point of time."""
    if one.ready_most is None or one.oldest_most is None:
        return "-", "-"
    return f"{one.ready_most:,}", format_duration(round(one.oldest_most * SECOND)) if one.oldest_most else "-"


def _print_lines(found: HistoryAnswer) -> None:
    each = -(-len(found.points) // _MOST_COLUMNS) or 1
    columns = [found.points[start : start + each] for start in range(0, len(found.points), each)]
    for name in _COUNTS:
        if any(numbers := [sum(getattr(point, name) for point in column) for column in columns]):
            print_line(f"{name:>9} {sparkline(numbers)} {sum(numbers):,}")
    if found.deploys:
        marks = "".join("^" if _deploys_in(found, column) else " " for column in columns)
        print_line(f"{'deployed':>9} {marks} {escape_control(version_text(found.deploys[::-1]))}")
    if statuses := found.total.statuses:
        most = sorted(statuses, key=lambda status: (-statuses[status], status))[:STATUSES_SHOWN]
        print_line(f"{'answers':>9} " + ", ".join(f"{status}: {statuses[status]:,}" for status in most))


def _cells(one: Figures) -> tuple[object, ...]:
    return (*(getattr(one, name) for name in _COUNTS), *_times(one.waited), *_times(one.ran))


def _times(times: Percentiles | None) -> tuple[str, str]:
    if times is None:
        return "-", "-"
    return format_duration(round(times.p50 * SECOND)), format_duration(round(times.p99 * SECOND))
