"""`tarry tasks`: the app's tasks as found, and HTTP tasks, which are registered here."""

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tarry.cli.endpoints import CLOSED, at_once, circuit
from tarry.cli.printing import partial_answer, print_json, print_table
from tarry.cli.queues import unknown_tasks, warn_of_unknown
from tarry.client.task import Task
from tarry.errors import TarryError, UsageError
from tarry.model.duration import SECOND, format_duration
from tarry.model.job import State
from tarry.model.quantity import jobs_wait
from tarry.model.retry import Retry
from tarry.process.loading import Setup
from tarry.store.base import Tally
from tarry.terminal import say

if TYPE_CHECKING:
    from tarry.push.delivery.flow import FlowState as Flow
    from tarry.push.endpoint.settings import Endpoint
    from tarry.push.http.response import HttpResponse

ACTIONS = ("list", "add", "edit", "remove", "try")
# Settings whose value is text, whatever it looks like.
_TEXTS = frozenset({"url", "method", "secret", "queue", "retry_when", "rate", "order"})

Facts = dict[str, Any]


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
    setup = Setup.of(args)
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


def _add(setup: Setup, args: argparse.Namespace) -> int:
    from tarry.push import registry  # noqa: PLC0415 - with what checks URLs and rules

    _refuse_taken(setup, args.name)
    endpoint = registry.add(
        setup.client.store, args.name, _parse_settings(args.settings), setup.guard, setup.config.push.secrets
    )
    _warn(endpoint)
    return _print_done(args, "added", f"{args.name} added")


def _edit(setup: Setup, args: argparse.Namespace) -> int:
    from tarry.push import registry  # noqa: PLC0415 - as above

    changes, name = _parse_settings(args.settings), args.name
    if not changes:
        raise UsageError(f"edit what? tarry tasks edit {name} SETTING=VALUE")
    setup.home.http.load()
    if setup.home.http.is_configured(name):
        # The store can disable a task of the settings file, but not enable one that the file disables.
        enabled = setup.home.http.endpoints[name].enabled
        if not enabled or changes.keys() != {"enabled"} or not isinstance(changes["enabled"], bool):
            raise TarryError(f"{name} stands in {setup.config.place('tasks', name)}: edit it there, and `tarry reload`")
        registry.set_enabled(setup.client.store, name, changes["enabled"], configured=True)
    else:
        _warn(registry.edit(setup.client.store, name, changes, setup.guard, setup.config.push.secrets))
    return _print_done(args, "edited", f"{name} edited")


def _remove(setup: Setup, args: argparse.Namespace) -> int:
    from tarry.push import registry  # noqa: PLC0415 - as above

    setup.home.http.load()
    if setup.home.http.is_configured(args.name):
        raise TarryError(f"{args.name} stands in {setup.config.place('tasks', args.name)}: take it out there")
    waiting = registry.remove(setup.client.store, args.name)
    if (function := setup.home.tasks.get(args.name)) is not None and function.runner is None:
        setup.home.declare_limits(setup.client.store)  # the function gets the jobs from now on
    line = f"{args.name} removed"
    if waiting:
        line += f"; its {jobs_wait(waiting)}: add it again, or tarry jobs delete --task {args.name}"
    return _print_done(args, "removed", line, waiting=waiting)


def _try(setup: Setup, args: argparse.Namespace) -> int:
    from tarry.push.delivery.verdict import judge  # noqa: PLC0415 - as above

    if not args.response:
        raise UsageError(f"try with what? tarry tasks try {args.name} --response FILE")
    task = setup.home.http.find(args.name)
    if task is None:
        raise TarryError(f"no HTTP task {args.name}; `tarry tasks` lists them")
    answer = _answer(args.response, args.status)
    verdict = judge(task.endpoint, answer, 0.0)
    outcome = type(verdict).__name__.lower()
    delay = task.endpoint.schedule.delay(1, asked=getattr(verdict, "after", None)) if outcome == "again" else None
    if args.json:
        print_json({"outcome": outcome, "reason": verdict.reason, "delay": None if delay is None else delay / SECOND})
    else:
        after = f", after the first attempt in {format_duration(delay)}" if delay is not None else ""
        say(f"{outcome}{after}: {verdict.reason}")
    return 0


def _answer(file: str, status: int | None) -> "HttpResponse":
    from tarry.push.http.response import MOST_BODY, HttpResponse  # noqa: PLC0415 - as above

    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    headers: list[tuple[str, str]] = []
    if data.startswith(b"HTTP/"):
        # `curl -i` prints CRLF, and an editor may have changed that.
        head, _, data = data.replace(b"\r\n", b"\n").partition(b"\n\n")
        first, *lines = head.decode("latin-1").split("\n")
        headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        status = status or _status(first)
    return HttpResponse(status or 200, tuple(headers), data[:MOST_BODY], len(data) > MOST_BODY)


def _status(line: str) -> int:
    parts = line.split()
    if len(parts) < 2 or not parts[1].isdecimal() or len(parts[1]) != 3:
        raise TarryError(f"{line[:80]!r} says no status; write it as in HTTP/1.1 200 OK")
    return int(parts[1])


def _refuse_taken(setup: Setup, name: str) -> None:
    setup.home.http.load()
    if setup.home.http.is_configured(name):
        raise TarryError(f"{name} stands in {setup.config.place('tasks', name)} already: edit it there")
    if name in setup.home.tasks:
        raise TarryError(f"{name} is a function of the app; give the HTTP task another name")


def _parse_settings(words: Sequence[str]) -> Facts:
    """Parses `delay=10m`, `schedule=["1m", "3m"]`, `secret=`: a value is TOML if it parses as TOML, else text; an empty
    one is None."""
    found: Facts = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise UsageError(f"{word!r} sets nothing; write SETTING=VALUE, as in url=https://host/path")
        if name in found:
            raise UsageError(f"{name} is given twice; leave out one")
        found[name] = _value(name, value)
    return found


def _value(name: str, text: str) -> Any:
    if not text:
        return None
    try:
        value = tomllib.loads(f"it = {text}")["it"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    # TOML also knows dates; no setting is one.
    plain = isinstance(value, str | list | dict) or (isinstance(value, int | float) and name not in _TEXTS)
    return value if plain else text


def _warn(endpoint: "Endpoint") -> None:
    for warning in endpoint.warnings():
        say(f"tarry: {endpoint.name}: {warning}", file=sys.stderr)


def _print_done(args: argparse.Namespace, done: str, line: str, **facts: Any) -> int:
    if args.json:
        print_json({done: args.name, **facts})
    else:
        say(line)
    return 0


def _list(setup: Setup, json: bool) -> int:
    store = setup.home.client.store
    book = setup.home.http
    book.load()
    partial_answer(lambda: book.sync(store))
    from tarry.push import registry  # noqa: PLC0415 - the app may have no such tasks

    flows = registry.read_flows(store) if book.endpoints else {}
    counts = partial_answer(store.counts)
    waiting = _waiting(counts)
    facts = []
    for task in sorted(setup.home.tasks.values(), key=lambda task: task.name):
        fact = _fact(task, setup.home.retry)
        if (endpoint := book.endpoints.get(task.name)) is not None:
            state = flows[task.name][0] if task.name in flows else None
            fact |= _http(endpoint, state, waiting.get(task.name, 0), book.is_configured(task.name))
        facts.append(fact)
    if json:
        print_json(facts)
        return 0
    heads = ["task", "kind", "queue", "priority", "timeout", "retries"]
    http = ["to", "at once", "waiting", ""] if book.endpoints else []
    print_table(heads + http, [_row(fact, bool(http)) for fact in facts])
    warn_of_unknown(setup, unknown_tasks(setup, counts))
    return 0


def _waiting(counts: Sequence[Tally]) -> dict[str, int]:
    found: dict[str, int] = {}
    for tally in counts:
        if tally.state in (State.SCHEDULED, State.READY):
            found[tally.task] = found.get(tally.task, 0) + tally.count
    return found


def _fact(task: Task[Any, Any], retry: Retry) -> Facts:
    return {
        "task": task.name,
        "kind": "http" if task.runner is not None else "async" if task.is_async else "sync",
        "queue": task.queue,
        "priority": task.priority,
        "timeout": task.timeout,
        "retries": (task.retry or retry).limit,
    }


def _http(endpoint: "Endpoint", state: "Flow | None", waiting: int, in_file: bool) -> Facts:
    """The facts that only HTTP tasks have; no secrets."""
    return {
        "timeout": endpoint.timeout,
        "url": endpoint.url.shown,
        "enabled": endpoint.enabled,
        "from": "configuration" if in_file else "store",
        "at_once": at_once(endpoint, state),
        "circuit": circuit(state),
        "trouble": (state.why if state else "") or None,
        "waiting": waiting,
        "settings": endpoint.display_settings(),
    }


def _row(fact: Facts, http: bool) -> tuple[Any, ...]:
    plain = (
        fact["task"],
        fact["kind"],
        fact["queue"],
        fact["priority"],
        _value_or(fact["timeout"], "none"),
        _value_or(fact["retries"], "no limit"),
    )
    if not http:
        return plain
    if "url" not in fact:
        return (*plain, "", "", "", "")
    return (*plain, fact["url"], _value_or(fact["at_once"], "-"), fact["waiting"], _describe_circuit(fact))


def _describe_circuit(fact: Facts) -> str:
    how = "disabled" if not fact["enabled"] else "" if fact["circuit"] == CLOSED else fact["circuit"]
    return f"{how}: {fact['trouble']}" if how and fact["trouble"] else how


def _value_or(value: Any, word: str) -> Any:
    return word if value is None else value
