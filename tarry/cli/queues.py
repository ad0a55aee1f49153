"""`tarry queues` and `tarry tasks`."""

import argparse
from typing import Any

from tarry.cli.loading import Setup
from tarry.cli.printing import ago, as_json, bar, confirmed, partly, table
from tarry.engine.bulk import changed, matching
from tarry.engine.client import Client
from tarry.errors import TarryError
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.store.base import Query, Tally

WAITING = (State.SCHEDULED, State.READY)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Their places on the command line."""
    queues = commands.add_parser("queues", help="list, pause, resume or purge queues")
    queues.add_argument("action", nargs="?", choices=("list", "pause", "resume", "purge"), default="list")
    queues.add_argument("names", nargs="*", metavar="QUEUE")
    queues.add_argument("--yes", action="store_true", help="do not ask")
    queues.set_defaults(run=run_queues)
    tasks = commands.add_parser("tasks", help="list the app's tasks")
    tasks.add_argument("action", nargs="?", choices=("list",), default="list")
    tasks.set_defaults(run=run_tasks)


def run_queues(args: argparse.Namespace) -> int:
    """Status 0 once done."""
    setup = Setup.of(args)
    if args.action == "list":
        return _list(setup.client, args.json)
    if not args.names:
        raise TarryError(f"{args.action} which queue? tarry queues {args.action} NAME")
    if args.action == "purge":
        return _purge(setup.client, args)
    for name in args.names:
        setup.client.store.pause(name, args.action == "pause")
    done = "paused" if args.action == "pause" else "resumed"
    if args.json:
        as_json({done: args.names})
    else:
        print(f"{', '.join(args.names)} {done}")
    return 0


def unknown_tasks(client: Client, counts: list[Tally]) -> dict[str, int]:
    """Unfinished jobs of tasks that this app does not know, by task."""
    waiting: dict[str, int] = {}
    for tally in counts:
        if client.tasks and tally.task not in client.tasks and not tally.state.finished:
            waiting[tally.task] = waiting.get(tally.task, 0) + tally.count
    return waiting


def _list(client: Client, json: bool) -> int:
    counts, paused = partly(client.store.counts), partly(client.store.queues)
    names = sorted({tally.queue for tally in counts} | paused.keys())
    rows = [_row(name, counts, paused.get(name, False)) for name in names]
    unknown = unknown_tasks(client, counts)
    if json:
        as_json({"queues": rows, "unknown_tasks": unknown})
        return 0
    now = client.clock.now()
    heads = ("queue", *(state.value for state in State), "oldest ready", "")
    table(heads, [_cells(row, now) for row in rows])
    for task, count in unknown.items():
        print(f"{count:,} jobs wait for the task {task}, which this app does not know")
    return 0


def _row(name: str, counts: list[Tally], paused: bool) -> dict[str, Any]:
    mine = [tally for tally in counts if tally.queue == name]
    row: dict[str, Any] = {"queue": name, "paused": paused}
    for state in State:
        row[state.value] = sum(tally.count for tally in mine if tally.state is state)
    ready = [tally.oldest for tally in mine if tally.state is State.READY]
    row["oldest_ready"] = min(ready) / SECOND if ready else None
    return row


def _cells(row: dict[str, Any], now: int) -> tuple[Any, ...]:
    oldest = row["oldest_ready"]
    since = "-" if oldest is None else ago(round(oldest * SECOND), now)
    return (row["queue"], *(row[state.value] for state in State), since, "paused" if row["paused"] else "")


def _purge(client: Client, args: argparse.Namespace) -> int:
    purged = 0
    for name in args.names:
        query = Query(WAITING, name)
        total = sum(map(len, matching(client, query)))
        if total and not confirmed(f"Delete the {total:,} jobs that wait in {name}, for good?", args.yes):
            return 1
        for page in bar(matching(client, query), -(-total // 1000), "page"):
            purged += changed(client, page, lambda job, now: lifecycle.forgotten(job))
    if args.json:
        as_json({"deleted": purged})
    else:
        print(f"{purged:,} jobs deleted")
    return 0


def run_tasks(args: argparse.Namespace) -> int:
    """The app's Python tasks."""
    tasks = sorted(Setup.of(args).app.tasks.values(), key=lambda task: task.name)
    facts = [
        {
            "task": task.name,
            "kind": "async" if task.is_async else "sync",
            "queue": task.queue,
            "priority": task.priority,
            "timeout": task.timeout,
            "retries": task.retry.limit,
        }
        for task in tasks
    ]
    if args.json:
        as_json(facts)
    else:
        heads = ("task", "kind", "queue", "priority", "timeout", "retries")
        rows = [
            (f["task"], f["kind"], f["queue"], f["priority"], _or(f["timeout"], "none"), _or(f["retries"], "no limit"))
            for f in facts
        ]
        table(heads, rows)
    return 0


def _or(value: Any, word: str) -> Any:
    return word if value is None else value
