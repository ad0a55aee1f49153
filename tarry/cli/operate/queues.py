"""`tarry queues`, in words."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tarry.cli.operate.method_command import CommandCall, Subject, add_methods, print_done
from tarry.cli.shared.printing import format_ago, print_table
from tarry.client.operations.operation import OperationRecord
from tarry.client.queue_records import (
    RATE_MINUTES,
    QueueBands,
    QueueDetail,
    QueueRecord,
)
from tarry.model.duration import SECOND, format_duration
from tarry.model.job import State
from tarry.model.quantity import jobs_wait, quantity
from tarry.operate.queues import METHODS, QueueList
from tarry.process.loading import CommandContext
from tarry.push.health import EndpointHealth, endpoint_health
from tarry.store.queries.due_horizon import DueHorizon, due_horizon
from tarry.store.rules.base import Tally
from tarry.store.rules.waiting import CappedCount
from tarry.terminal import print_line


def unknown_tasks(setup: CommandContext, counts: Sequence[Tally]) -> dict[str, int]:
    """How many unfinished jobs there are of each task that this app does not know; without an app, of each HTTP task
    that was removed."""
    known = setup.known_tasks()
    if setup.app_name:
        return _count_unfinished(counts, lambda name: name not in known)
    # Without an app, this process does not know which functions the workers have.
    from tarry.push.endpoint.endpoint_cells import removed_with_jobs  # noqa: PLC0415 - most stores have none

    return _count_unfinished(counts, (removed_with_jobs(setup.client.store) - known.keys()).__contains__)


def _count_unfinished(counts: Sequence[Tally], of: Callable[[str], bool]) -> dict[str, int]:
    found: dict[str, int] = {}
    for tally in counts:
        if of(tally.task) and not tally.state.finished:
            found[tally.task] = found.get(tally.task, 0) + tally.count
    return found


def _print_details(call: CommandCall, names: Sequence[str], found: Sequence[QueueDetail]) -> None:
    store, now = call.client.store, call.client.clock.now()
    for one in found:
        print_table(
            ("queue", one.queue), [*_detail_rows(one, now), *_due_rows(due_horizon(store.waiting, now, [one.queue]))]
        )


def _detail_rows(one: QueueDetail, now: int) -> Iterator[tuple[str, str]]:
    yield from ((state.value, f"{getattr(one, state.value):,}") for state in State)
    for name in QueueBands.__struct_fields__:
        yield f"ready, {name} band", _format_count(getattr(one.bands, name))
    yield "oldest ready", "-" if one.oldest_ready is None else format_ago(round(one.oldest_ready * SECOND), now)
    yield f"put, last {RATE_MINUTES} minutes", f"{one.came:,}"
    yield f"ended, last {RATE_MINUTES} minutes", f"{one.left:,}"
    yield "empty", _when_empty(one)
    yield "notes", _notes(one) or "-"


def _when_empty(one: QueueDetail) -> str:
    if not one.ready:
        return "now: no job is ready"
    if one.drains_in is None:
        return "not at this pace: no more jobs end than are put"
    return f"in {format_duration(round(one.drains_in) * SECOND)} at this pace"


def _due_rows(due: DueHorizon) -> Iterator[tuple[str, str]]:
    yield "overdue", _format_count(due.overdue)
    # An hour in which nothing comes due has no line.
    yield from (
        (f"due in hour {at}", _format_count(hour)) for at, hour in enumerate(due.hours, 1) if hour != CappedCount(0)
    )
    yield "due later", _format_count(due.later)


def _format_count(count: CappedCount) -> str:
    return f"{count.count:,}{' or more' if count.at_least else ''}"


def _print_list(call: CommandCall, found: QueueList) -> None:
    client, counts = call.client, call.look().counts
    now = client.clock.now()
    heads = ("queue", *(state.value for state in State), "oldest ready", "")
    print_table(heads, [_cells(row, now) for row in found.queues])
    warn_of_unknown(call.setup, unknown_tasks(call.setup, counts))
    held = [one for one in endpoint_health(client.store, call.app.http.endpoints, now) if one.problem]
    for one in held:
        if count := _count_unfinished(counts, one.task.__eq__).get(one.task):
            print_line(f"{jobs_wait(count)} for the task {one.task}, which is {_describe_held(one)}")


def _describe_held(one: EndpointHealth) -> str:
    if not one.enabled:
        return f"disabled: tarry tasks edit {one.task} enabled=true"
    return f"{one.problem}: {one.trouble}" if one.trouble else one.problem


def warn_of_unknown(setup: CommandContext, unknown: dict[str, int]) -> None:
    """Prints a line for each unknown task."""
    why = "this app does not know" if setup.app_name else "was removed"
    for task, count in unknown.items():
        print_line(f"{jobs_wait(count)} for the task {task}, which {why}")


def _cells(row: QueueRecord, now: int) -> tuple[Any, ...]:
    since = "-" if row.oldest_ready is None else format_ago(round(row.oldest_ready * SECOND), now)
    return (row.queue, *(getattr(row, state.value) for state in State), since, _notes(row))


def _notes(row: QueueRecord) -> str:
    notes = ["paused"] if row.paused else []
    if row.max_waiting is not None:
        notes.append(f"{row.scheduled + row.ready:,} of {row.max_waiting:,} wait")
    if row.dropped:
        notes.append(f"{row.dropped:,} dropped")
    return ", ".join(notes if row.served else [*notes, "no pool here serves it"])


def _print_bounds(_: CommandCall, names: Sequence[str], found: Sequence[QueueRecord]) -> None:
    for name, one in zip(names, found, strict=True):
        bound = f"{one.max_waiting:,} may wait, then {one.when_full}" if one.max_waiting else "no bound"
        print_line(f"{name}: {bound}")


def _print_purged(_: CommandCall, names: Sequence[str], found: Sequence[OperationRecord]) -> None:
    dry = any(one.dry_run for one in found)
    number = sum(one.matched if one.dry_run else one.changed for one in found)
    print_line(f"{quantity(number)} {'would be deleted' if dry else 'deleted'}")


SUBJECT = Subject(
    METHODS,
    {
        "list": _print_list,
        "show": _print_details,
        "pause": print_done("paused"),
        "resume": print_done("resumed"),
        "bound": _print_bounds,
        "reset-bound": _print_bounds,
        "purge": _print_purged,
    },
    "list, show, pause, resume, bound or purge queues",
)
add = partial(add_methods, "queues", SUBJECT)
