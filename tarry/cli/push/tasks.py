"""`tarry tasks`: the app's tasks as found, and HTTP tasks, which are registered here."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from tarry.cli.operate.queues import unknown_tasks, warn_of_unknown
from tarry.cli.printing import partial_answer, print_json, print_table
from tarry.errors import UsageError
from tarry.model.duration import SECOND, format_duration
from tarry.model.quantity import jobs_wait
from tarry.process.loading import CommandContext
from tarry.push.editing import HttpTaskEditor, read_answer
from tarry.push.endpoint.written import read_written
from tarry.push.health import CLOSED
from tarry.push.task_records import TaskRecord, task_records
from tarry.terminal import say

if TYPE_CHECKING:
    from tarry.push.endpoint.settings import Endpoint

ACTIONS = ("list", "add", "edit", "remove", "try")
TaskFacts = dict[str, Any]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "tasks",
        help="list the app's tasks; add, edit, remove or try HTTP tasks",
        description="""HTTP tasks send their jobs to a URL. Those that are added live in the store, and every worker
        has them within a second. SETTING=VALUE: as in [tasks.NAME] of tarry.toml, url=https://... at least; without a
        VALUE, edit takes the setting out. try: what the task's rule makes of an answer; FILE (- for standard input)
        holds its body, or all of it as `curl -i` prints it.""",
    )
    command.add_argument("action", nargs="?", choices=ACTIONS, default="list")
    command.add_argument("name", nargs="?", metavar="NAME")
    command.add_argument("settings", nargs="*", metavar="SETTING=VALUE")
    command.add_argument("--response", metavar="FILE", help="the answer to try")
    command.add_argument("--status", type=int, help="its status, where FILE holds only the body (200)")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 0 once done."""
    setup = CommandContext.of(args)
    if args.action == "list":
        if args.name:
            raise UsageError("list takes no names; `tarry tasks` shows them all")
        return _list(setup, args.json)
    if not args.name:
        raise UsageError(f"{args.action} which task? tarry tasks {args.action} NAME")
    if args.action != "try" and (args.response or args.status):
        raise UsageError(f"--response and --status are for `tarry tasks try`; {args.action} sends nothing")
    if args.action in ("remove", "try") and args.settings:
        raise UsageError(f"{args.action} takes one name and no settings")
    return {"add": _add, "edit": _edit, "remove": _remove, "try": _try}[args.action](setup, args)


def _editor(setup: CommandContext) -> HttpTaskEditor:
    return HttpTaskEditor(setup.home.http, setup.client.store, setup.home.declare_limits)


def _add(setup: CommandContext, args: argparse.Namespace) -> int:
    _warn(_editor(setup).add(args.name, _parse_settings(args.settings)))
    return _print_done(args, "added", f"{args.name} added")


def _edit(setup: CommandContext, args: argparse.Namespace) -> int:
    changes, name = _parse_settings(args.settings), args.name
    if not changes:
        raise UsageError(f"edit what? tarry tasks edit {name} SETTING=VALUE")
    if (endpoint := _editor(setup).edit(name, changes)) is not None:
        _warn(endpoint)
    return _print_done(args, "edited", f"{name} edited")


def _remove(setup: CommandContext, args: argparse.Namespace) -> int:
    waiting = _editor(setup).remove(args.name)
    line = f"{args.name} removed"
    if waiting:
        line += f"; its {jobs_wait(waiting)}: add it again, or tarry jobs delete --task {args.name}"
    return _print_done(args, "removed", line, waiting=waiting)


def _try(setup: CommandContext, args: argparse.Namespace) -> int:
    if not args.response:
        raise UsageError(f"try with what? tarry tasks try {args.name} --response FILE")
    data = sys.stdin.buffer.read() if args.response == "-" else Path(args.response).read_bytes()
    found = _editor(setup).try_answer(args.name, read_answer(data, args.status))
    if args.json:
        print_json(found)
    else:
        delay = None if found.delay is None else format_duration(round(found.delay * SECOND))
        say(f"{found.outcome}{f', after the first attempt in {delay}' if delay else ''}: {found.reason}")
    return 0


def _parse_settings(words: Sequence[str]) -> TaskFacts:
    """Parses `delay=10m`, `schedule=["1m", "3m"]`, `secret=`."""
    found: TaskFacts = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise UsageError(f"{word!r} sets nothing; write SETTING=VALUE, as in url=https://host/path")
        if name in found:
            raise UsageError(f"{name} is given twice; leave out one")
        found[name] = read_written(name, value)
    return found


def _warn(endpoint: "Endpoint") -> None:
    for warning in endpoint.warnings():
        say(f"tarry: {endpoint.name}: {warning}", file=sys.stderr)


def _print_done(args: argparse.Namespace, done: str, line: str, **facts: Any) -> int:
    if args.json:
        print_json({done: args.name, **facts})
    else:
        say(line)
    return 0


def _list(setup: CommandContext, json: bool) -> int:
    store = setup.home.client.store
    catalog = setup.home.http
    catalog.load()
    partial_answer(lambda: catalog.sync(store))
    counts = partial_answer(store.counts)
    records = task_records(setup.home.tasks.values(), setup.home.retry, catalog, store, counts)
    if json:
        print_json(records)
        return 0
    heads = ["task", "kind", "queue", "priority", "timeout", "retries"]
    http = ["to", "at once", "waiting", ""] if catalog.endpoints else []
    print_table(heads + http, [_row(record, bool(http)) for record in records])
    warn_of_unknown(setup, unknown_tasks(setup, counts))
    return 0


def _row(record: TaskRecord, http: bool) -> tuple[Any, ...]:
    plain = (
        record.task,
        record.kind,
        record.queue,
        record.priority,
        _value_or(record.timeout, "none"),
        _value_or(record.retries, "no limit"),
    )
    if not http:
        return plain
    if record.url is UNSET:
        return (*plain, "", "", "", "")
    return (*plain, record.url, _value_or(record.at_once, "-"), record.waiting, _describe_circuit(record))


def _describe_circuit(record: TaskRecord) -> str:
    how = "disabled" if not record.enabled else "" if record.circuit == CLOSED else record.circuit
    return f"{how}: {record.trouble}" if how and record.trouble else str(how)


def _value_or(value: Any, word: str) -> Any:
    return word if value is None else value
