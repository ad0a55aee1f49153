"""`tarry stats`: what was put, done, failed, dead by task and queue: today, by hour, by day, in all."""

import argparse
import contextlib
import time
from collections.abc import Sequence

from tarry.cli.shared.printing import format_moment, partial_answer, print_json, print_table, zone_at
from tarry.cli.top.text import sparkline
from tarry.errors import StoreError
from tarry.model.duration import SECOND, format_duration
from tarry.process.loading import CommandContext
from tarry.store.queries.history_reading import (
    Figures,
    HistoryPoint,
    HistoryView,
    Percentiles,
    Period,
    TaskFigures,
    Totals,
    bring_up_to_date,
    totals,
    view,
)
from tarry.store.rules.history.gauges import ALL_QUEUES
from tarry.store.rules.history.sums import DAYS, HOURS, LENGTH
from tarry.terminal import say

HOURS_SHOWN, DAYS_SHOWN = 24, 30
STATUSES_SHOWN = 10
"""The HTTP statuses that came most often."""
_COUNTS = ("put", "done", "failed", "dead", "cancelled", "expired")
_HEADS = (*_COUNTS, "waited p50", "p99", "ran p50", "p99")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    stats = commands.add_parser("stats", help="what was put, done, failed: today, by hour, by day, in all")
    which = stats.add_mutually_exclusive_group()
    which.add_argument("--hours", action="store_true", help=f"the last {HOURS_SHOWN} hours, by hour")
    which.add_argument("--days", action="store_true", help=f"the last {DAYS_SHOWN} days, by day")
    which.add_argument("--total", action="store_true", help="in all, since the store began to count")
    stats.add_argument("--queue", metavar="NAME", help="only this queue")
    stats.add_argument("--task", metavar="NAME", help="only this task")
    stats.set_defaults(run=run_stats)


def run_stats(args: argparse.Namespace) -> int:
    """Status 0 once shown."""
    store = CommandContext.of(args).client.store
    now = store.time()
    # What cannot be summed up now, since the store is full or read-only, is seen later.
    with contextlib.suppress(StoreError):
        bring_up_to_date(store.history, now)
    if args.total:
        return _show_totals(args, partial_answer(lambda: totals(store.history, lambda *names: _wanted(args, *names))))
    period = _period(args, now)
    # Only points of time have samples, and these are of no task.
    sampled = None if args.task else (args.queue or ALL_QUEUES).__eq__
    found = partial_answer(lambda: view(store.history, period, lambda *names: _wanted(args, *names), sampled))
    if args.json:
        print_json({"from": period.start, "to": period.end, "step": LENGTH[period.resolution], **_facts(found)})
    elif args.hours or args.days:
        _print_points(found, "%Y-%m-%d" if args.days else "%m-%d %H:%M")
    else:
        _print_tasks(found)
    return 0


def _show_totals(args: argparse.Namespace, found: Totals) -> int:
    if args.json:
        print_json(found)
    else:
        _print_rows(found.tasks)
    return 0


def _wanted(args: argparse.Namespace, queue: str, task: str) -> bool:
    return args.queue in (None, queue) and args.task in (None, task)


def _period(args: argparse.Namespace, now: int) -> Period:
    if args.days:
        return Period.last(DAYS, DAYS_SHOWN, now)
    if args.hours:
        return Period.last(HOURS, HOURS_SHOWN, now)
    # Today begins at midnight where the command runs, and days of the history begin at that of UTC.
    today = time.localtime(now / SECOND)
    midnight = time.mktime((today.tm_year, today.tm_mon, today.tm_mday, 0, 0, 0, 0, 0, -1))
    return Period(HOURS, int(midnight), Period.last(HOURS, 1, now).end)


def _facts(found: HistoryView) -> dict[str, object]:
    return {"total": found.total, "tasks": found.tasks, "points": found.points}


def _print_tasks(found: HistoryView) -> None:
    _print_rows(found.tasks)
    if found.tasks:
        _print_lines(found)


def _print_rows(tasks: Sequence[TaskFigures]) -> None:
    rows = [(one.queue or "others", one.task or "others", *_cells(one)) for one in tasks]
    print_table(("queue", "task", *_HEADS), rows)


def _print_points(found: HistoryView, form: str) -> None:
    rows = [(format_moment(one.start, form), *_cells(one), *_sample(one)) for one in found.points]
    print_table((f"from ({zone_at(found.points[-1].start if found.points else 0)})", *_HEADS, "ready", "oldest"), rows)
    _print_lines(found)


def _sample(one: HistoryPoint) -> tuple[str, str]:
    """The highest samples of a point of time."""
    if one.ready_most is None or one.oldest_most is None:
        return "-", "-"
    return f"{one.ready_most:,}", format_duration(round(one.oldest_most * SECOND)) if one.oldest_most else "-"


def _print_lines(found: HistoryView) -> None:
    for name in _COUNTS:
        if any(numbers := [getattr(point, name) for point in found.points]):
            say(f"{name:>9} {sparkline(numbers)} {sum(numbers):,}")
    if statuses := found.total.statuses:
        most = sorted(statuses, key=lambda status: (-statuses[status], status))[:STATUSES_SHOWN]
        say(f"{'answers':>9} " + ", ".join(f"{status}: {statuses[status]:,}" for status in most))


def _cells(one: Figures) -> tuple[object, ...]:
    return (*(getattr(one, name) for name in _COUNTS), *_times(one.waited), *_times(one.ran))


def _times(times: Percentiles | None) -> tuple[str, str]:
    if times is None:
        return "-", "-"
    return format_duration(round(times.p50 * SECOND)), format_duration(round(times.p99 * SECOND))
