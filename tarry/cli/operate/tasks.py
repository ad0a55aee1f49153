"""`tarry tasks`, in words: the app's tasks as found, and HTTP tasks, which are registered here."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET

from tarry.cli.operate.method_command import CommandCall, Subject, Words, add_methods
from tarry.cli.operate.queues import unknown_tasks, warn_of_unknown
from tarry.cli.shared.printing import print_table
from tarry.errors import UsageError
from tarry.model.duration import SECOND, format_duration
from tarry.model.quantity import jobs_wait
from tarry.operate.tasks import METHODS, MOST_SAMPLE, TaskChange, TaskList, TaskRemoval
from tarry.push.editing import TriedAnswer
from tarry.push.endpoint.written import read_written
from tarry.push.health import CLOSED
from tarry.push.task_records import TaskRecord
from tarry.terminal import print_line


def _read_new(args: argparse.Namespace) -> Words:
    """NAME SETTING=VALUE..."""
    if not args.names:
        raise UsageError("add which task? tarry tasks add NAME")
    return (), {"task": args.names[0], "settings": _parse_settings(args.names[1:])}


def _read_changes(args: argparse.Namespace) -> Words:
    if len(args.names) == 1:
        raise UsageError(f"edit what? tarry tasks edit {args.names[0]} SETTING=VALUE")
    return args.names[:1], _parse_settings(args.names[1:])


def _read_answer(args: argparse.Namespace) -> Words:
    if not args.names:
        return (), {}
    if not args.response:
        raise UsageError(f"try with what? tarry tasks try {args.names[0]} --response FILE")
    data = sys.stdin.buffer.read() if args.response == "-" else Path(args.response).read_bytes()
    return args.names, {"body": data.decode(errors="replace")[:MOST_SAMPLE]}


def _parse_settings(words: Sequence[str]) -> dict[str, Any]:
    """Parses `delay=10m`, `schedule=["1m", "3m"]`, `secret=`."""
    found: dict[str, Any] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise UsageError(f"{word!r} sets nothing; write SETTING=VALUE, as in url=https://host/path")
        if name in found:
            raise UsageError(f"{name} is given twice; leave out one")
        found[name] = read_written(name, value)
    return found


def _print_change(_: CommandCall, one: TaskChange, done: str = "added") -> None:
    for warning in one.warnings:
        print_line(f"tarry: {one.task.task}: {warning}", file=sys.stderr)
    print_line(f"{one.task.task} {done}")


def _print_changes(call: CommandCall, names: Sequence[str], found: Sequence[TaskChange]) -> None:
    for one in found:
        _print_change(call, one, "edited")


def _print_removed(_: CommandCall, names: Sequence[str], found: Sequence[TaskRemoval]) -> None:
    for one in found:
        left = f"; its {jobs_wait(one.waiting)}: add it again, or tarry jobs delete --task {one.task}"
        print_line(f"{one.task} removed{left if one.waiting else ''}")


def _print_tried(_: CommandCall, names: Sequence[str], found: Sequence[TriedAnswer]) -> None:
    for one in found:
        delay = None if one.delay is None else format_duration(round(one.delay * SECOND))
        print_line(f"{one.outcome}{f', after the first attempt in {delay}' if delay else ''}: {one.reason}")


def _print_tasks(call: CommandCall, _: Sequence[str], found: Sequence[TaskRecord]) -> None:
    heads = ["task", "kind", "queue", "priority", "timeout", "retries"]
    is_http = any(one.url is not UNSET for one in found)
    http = ["to", "at once", "waiting", ""] if is_http else []
    print_table(heads + http, [_row(record, is_http) for record in found])


def _print_list(call: CommandCall, found: TaskList) -> None:
    _print_tasks(call, (), found.tasks)
    warn_of_unknown(call.setup, unknown_tasks(call.setup, call.look().counts))


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


SUBJECT = Subject(
    METHODS,
    {
        "list": _print_list,
        "show": _print_tasks,
        "add": _print_change,
        "edit": _print_changes,
        "remove": _print_removed,
        "try": _print_tried,
    },
    "list or show the app's tasks; add, edit, remove or try HTTP tasks",
    """HTTP tasks send their jobs to a URL. Those that are added live in the store, and every worker has them within a
    second. add and edit take SETTING=VALUE...: as in [tasks.NAME] of tarry.toml, url=https://... at least; without a
    VALUE, edit takes the setting out. try: what the task's rule makes of an answer; FILE (- for standard input) holds
    its body, or all of it as `curl -i` prints it.""",
    words={"add": _read_new, "edit": _read_changes, "try": _read_answer},
    worded=("task", "settings", "body"),
    extra={"response": ("try",)},
)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = add_methods("tasks", SUBJECT, commands)
    command.add_argument("--response", metavar="FILE", help="try: the answer")
