"""`tarry stats`: what was put, done, failed, dead by task and queue: today, by hour, by day, in all."""

import argparse
import contextlib
import time
from collections.abc import Sequence

from tarry.cli.operate.method_command import CommandCall, Subject
from tarry.cli.shared.printing import format_moment, partial_answer, print_json, print_table, zone_at
from tarry.errors import StoreError
from tarry.model.duration import SECOND, format_duration
from tarry.operate.history import HistoryAnswer, HistoryQuery, TotalsAnswer, WorkQuery, get_history, get_totals
from tarry.process.loading import CommandContext
from tarry.store.queries.history_reading import Figures, HistoryPoint, Percentiles, TaskFigures, bring_up_to_date
from tarry.terminal import print_line, sparkline

STATUSES_SHOWN = 10
"""The HTTP statuses that came most often."""
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
    stats.add_argument("--queue", metavar="NAME", help="only this queue")
    stats.add_argument("--task", metavar="NAME", help="only this task")
    stats.set_defaults(run=run_stats, methods={one.command: one for one in _SUBJECT.methods})


def run_stats(args: argparse.Namespace) -> int:
    """Status 0 once shown."""
    setup = CommandContext.of(args)
    store = setup.client.store
    # What cannot be summed up now, since the store is full or read-only, is seen later.
    with contextlib.suppress(StoreError):
        bring_up_to_date(store.history, store.time())
    method = get_totals if args.total else get_history
    query = WorkQuery(args.queue, args.task) if args.total else _query(args, store.time())
    call = CommandCall(setup, args, method, _SUBJECT, "")
    found = partial_answer(lambda: method.handler(call, query))
    if args.json:
        print_json(found)
    elif isinstance(found, TotalsAnswer):
        _print_rows(found.ever.tasks)
    elif args.hours or args.days:
        _print_points(found, "%Y-%m-%d" if args.days else "%m-%d %H:%M")
    else:
        _print_tasks(found)
    return 0


def _query(args: argparse.Namespace, now: int) -> HistoryQuery:
    start = None
    if not args.hours and not args.days:
        # Today begins at midnight where the command runs, and days of the history begin at that of UTC.
        today = time.localtime(now / SECOND)
        start = time.mktime((today.tm_year, today.tm_mon, today.tm_mday, 0, 0, 0, 0, 0, -1))
    return HistoryQuery("day" if args.days else "hour", start, queue=args.queue, task=args.task)


def _print_tasks(found: HistoryAnswer) -> None:
    _print_rows(found.tasks)
    if found.tasks:
        _print_lines(found)


def _print_rows(tasks: Sequence[TaskFigures]) -> None:
    rows = [(one.queue or "others", one.task or "others", *_cells(one)) for one in tasks]
    print_table(("queue", "task", *_HEADS), rows)


def _print_points(found: HistoryAnswer, form: str) -> None:
    rows = [(format_moment(one.start, form), *_cells(one), *_sample(one)) for one in found.points]
    print_table((f"from ({zone_at(found.points[-1].start if found.points else 0)})", *_HEADS, "ready", "oldest"), rows)
    _print_lines(found)


def _sample(one: HistoryPoint) -> tuple[str, str]:
    """The highest samples of a point of time."""
    if one.ready_most is None or one.oldest_most is None:
        return "-", "-"
    return f"{one.ready_most:,}", format_duration(round(one.oldest_most * SECOND)) if one.oldest_most else "-"


def _print_lines(found: HistoryAnswer) -> None:
    for name in _COUNTS:
        if any(numbers := [getattr(point, name) for point in found.points]):
            print_line(f"{name:>9} {sparkline(numbers)} {sum(numbers):,}")
    if statuses := found.total.statuses:
        most = sorted(statuses, key=lambda status: (-statuses[status], status))[:STATUSES_SHOWN]
        print_line(f"{'answers':>9} " + ", ".join(f"{status}: {statuses[status]:,}" for status in most))


def _cells(one: Figures) -> tuple[object, ...]:
    return (*(getattr(one, name) for name in _COUNTS), *_times(one.waited), *_times(one.ran))


def _times(times: Percentiles | None) -> tuple[str, str]:
    if times is None:
        return "-", "-"
    return format_duration(round(times.p50 * SECOND)), format_duration(round(times.p99 * SECOND))
