"""`tarry endpoints`: the health of the endpoints of HTTP tasks, and the acts that mend them."""

import argparse
from collections.abc import Callable, Iterator

from tarry.cli.operate.background import finish
from tarry.cli.printing import confirm, partial_answer, print_json, print_table
from tarry.client.operations.operation import JobFilter, Operation, OperationRecord
from tarry.client.queue_records import waiting_by
from tarry.errors import UnknownTask, UsageError
from tarry.model.duration import SECOND, format_duration
from tarry.model.job import State
from tarry.model.nearest import did_you_mean
from tarry.model.quantity import quantity
from tarry.process.loading import CommandContext
from tarry.push.editing import HttpTaskEditor
from tarry.push.endpoint_records import (
    EndpointRecord,
    close_circuit,
    endpoint_detail,
    endpoint_records,
    probe,
)
from tarry.store.queries.job_search import parse_moment
from tarry.terminal import say

ACTIONS = ("list", "show", "pause", "resume", "close", "probe", "replay")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "endpoints",
        help="list the endpoints of HTTP tasks; pause, resume, try or close them; send again what failed",
        description="""Each HTTP task has an endpoint. pause: its jobs wait. close: the circuit is closed by hand.
        probe: one request is sent now, whose outcome closes the circuit or opens it again. replay: what ended since
        then starts anew, in the background of this command; Ctrl-C stops it.""",
    )
    command.add_argument("action", nargs="?", choices=ACTIONS, default="list")
    command.add_argument("task", nargs="?", metavar="TASK")
    command.add_argument("--since", metavar="T", help='a time as in 2030-12-31T23:59Z, or so long ago, such as "10m"')
    command.add_argument("--all", action="store_true", help="also jobs that were delivered, not only dead ones")
    command.add_argument("--dry-run", action="store_true", help="count the jobs, and send none")
    command.add_argument("--yes", action="store_true", help="do not ask")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 0 once done."""
    setup = CommandContext.of(args)
    setup.known_tasks()
    if args.action == "list":
        if args.task:
            raise UsageError("list takes no task; `tarry endpoints show TASK` shows one")
        return _list(_records(setup), args.json)
    if not args.task:
        raise UsageError(f"{args.action} which endpoint? tarry endpoints {args.action} TASK")
    if args.since and args.action != "replay":
        raise UsageError("--since is for `tarry endpoints replay`")
    _known(setup, args.task)
    if args.action == "show":
        return _show(setup, args)
    return _replay(setup, args) if args.action == "replay" else _act(setup, args)


def _records(setup: CommandContext) -> list[EndpointRecord]:
    client = setup.client
    waiting = waiting_by(partial_answer(client.store.counts), lambda tally: tally.task)
    return endpoint_records(client.store, setup.home.http.endpoints, waiting, client.clock.now())


def _known(setup: CommandContext, task: str) -> EndpointRecord:
    records = {record.task: record for record in _records(setup)}
    if task not in records:
        raise UnknownTask(f"no HTTP task {task}{did_you_mean(task, list(records)) or '; `tarry endpoints` lists them'}")
    return records[task]


def _list(records: list[EndpointRecord], json: bool) -> int:
    if json:
        print_json(records)
    else:
        print_table(
            ("task", "endpoint", "circuit", "running", "at once", "waiting", "last error"),
            [
                (one.task, one.to, _circuit(one), one.in_flight, _or_dash(one.at_once), one.waiting, one.trouble)
                for one in records
            ],
        )
    return 0


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


def _circuit(one: EndpointRecord) -> str:
    return one.circuit if one.enabled else "paused"


def _show(setup: CommandContext, args: argparse.Namespace) -> int:
    now = setup.client.clock.now()
    found = endpoint_detail(setup.client.store, _known(setup, args.task), now)
    if args.json:
        print_json(found)
        return 0
    say("\n".join(_lines(found.endpoint, now / SECOND)))
    say(f"answers in the last hour: {_statuses(found.hour)}; in the last 24 hours: {_statuses(found.day)}")
    if found.exchanges:
        print_table(
            ("began", "job", "attempt", "outcome", "status", "took", "reason"),
            [
                (one.at, one.id, one.attempt, one.outcome, one.status or "-", _span(one.elapsed), one.reason)
                for one in found.exchanges
            ],
        )
    return 0


def _lines(one: EndpointRecord, now: float) -> Iterator[str]:
    yield f"{one.task} sends to {one.to}"
    since = f" for {_span(now - one.since)}" if one.since else ""
    opens = f", asked again in {_span(one.opens - now)}" if one.opens else ""
    yield f"circuit: {_circuit(one)}{since}{opens}{one.trouble and f' ({one.trouble})'}"
    bound = f", {one.bound} at most" if one.bound else ""
    yield f"requests: {one.in_flight} of {_or_dash(one.at_once)} at once{bound}; {quantity(one.waiting, 'job')} waiting"
    if one.shared_with:
        yield f"same host: {', '.join(one.shared_with)}"


def _statuses(found: dict[int, int]) -> str:
    return ", ".join(f"{status} {number:,} times" for status, number in sorted(found.items())) or "none"


def _span(seconds: float) -> str:
    return format_duration(max(0, round(seconds * SECOND)))


def _act(setup: CommandContext, args: argparse.Namespace) -> int:
    store, task = setup.client.store, args.task
    editor = HttpTaskEditor(setup.home.http, store, setup.home.declare_limits)
    acts: dict[str, tuple[Callable[[], object], str]] = {
        "pause": (lambda: editor.set_enabled(task, False), f"deliveries of {task} are paused"),
        "resume": (lambda: editor.set_enabled(task, True), f"deliveries of {task} are resumed"),
        "close": (lambda: close_circuit(store, task), f"the circuit of {task} is closed"),
        "probe": (lambda: probe(store, task), f"{task} is tried with its next job"),
    }
    act, said = acts[args.action]
    act()
    if args.json:
        print_json(_known(setup, task))
    else:
        say(said)
    return 0


def _replay(setup: CommandContext, args: argparse.Namespace) -> int:
    if not args.since:
        raise UsageError(f"send again what ended since when? tarry endpoints replay {args.task} --since 2h")
    client = setup.client
    try:
        since = max(0, parse_moment(args.since, client.clock.now())) / SECOND
    except ValueError as error:
        raise UsageError(f"--since: {error}") from None
    states = (State.DEAD, State.DONE) if args.all else (State.DEAD,)
    chosen = JobFilter(task=args.task, states=states, since=since)
    counted = finish(setup.home, Operation("", "retry", chosen, dry_run=True))
    if args.dry_run or not counted.matched:
        return _report(counted, args.json, "would be sent again" if args.dry_run else "to send again")
    if not confirm(f"Send {quantity(counted.matched, 'job')} of {args.task} again?", args.yes):
        return 1
    return _report(finish(setup.home, Operation("", "retry", chosen)), args.json, "sent again")


def _report(operation: Operation, json: bool, what: str) -> int:
    number = operation.matched if operation.dry_run else operation.changed
    if json:
        print_json(OperationRecord.of(operation))
    else:
        say(f"{quantity(number, 'job')} {what}")
    return 0
