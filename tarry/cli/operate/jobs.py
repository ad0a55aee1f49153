"""`tarry jobs`, in words: one job or many."""

import argparse
import contextlib
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from tarry.cli.operate.attempts import Attempts
from tarry.cli.operate.background import NotConfirmed
from tarry.cli.operate.job_report import explain, show
from tarry.cli.operate.method_command import CommandCall, Subject, add_methods, call_all, run_method
from tarry.cli.shared.host_requests import TIMEOUT, is_done, print_outcomes
from tarry.cli.shared.moment import parse_since
from tarry.cli.shared.printing import format_ago, partial_answer, print_json, print_result, print_table
from tarry.client.bulk import find_pages
from tarry.client.client import Client
from tarry.client.job_records import JobRecord, job_record
from tarry.client.operations.operation import JobFilter, MoveTarget
from tarry.errors import JobNotFound, UsageError
from tarry.keeper.keeper_records import RequestRecord
from tarry.model.duration import SECOND, microseconds
from tarry.model.job import RELATIVE, Job, State
from tarry.model.quantity import quantity
from tarry.operate.host_requests import METHODS as REQUEST_METHODS
from tarry.operate.jobs import METHODS, CancelAnswer
from tarry.operate.method import convert_values
from tarry.operate.operations import NewOperation, start_operation
from tarry.process.loading import CommandContext
from tarry.store.rules import ids
from tarry.store.rules.base import Query
from tarry.terminal import say

PrintedJob = JobRecord | CancelAnswer | RequestRecord | None
LISTED = 50
READING, ASKING = ("list", "show", "why"), ("kill", "stack")
NARROWING = "--queue --task --key --state --older --since"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = add_methods("jobs", SUBJECT, commands)
    command.add_argument("--queue")
    command.add_argument("--task")
    command.add_argument("--state", action="append", choices=[state.value for state in State], default=[])
    command.add_argument("--key", help="the unique key that they were enqueued with; with --task")
    command.add_argument("--since", help='in their state since that time or later: "2h" (ago), "2026-11-22T03:00Z"')
    command.add_argument("--older", help='in their state for longer than this, such as "1h"')
    command.add_argument("--limit", type=int, help=f"list, show, why: at most so many ({LISTED})")
    command.add_argument(
        "--timeout", type=float, help=f"kill, stack: give up waiting after so many seconds ({TIMEOUT:g})"
    )
    command.add_argument("--yes", action="store_true", help="do not ask")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 1 where nothing could be done."""
    _check(args)
    if args.key and args.action == "cancel":
        args.names = [ids.text(job.id) for job in _jobs_with_key(CommandContext.of(args).client, args)]
    if args.names or args.action in (*SUBJECT.own, *ASKING):
        return run_method("jobs", SUBJECT, args)
    return _change_matching(args)


def _run_own(args: argparse.Namespace) -> int:
    setup = CommandContext.of(args)
    if args.action == "list":
        return _list(setup, args)
    report = show if args.action == "show" else explain
    return report(setup, _select(setup.client, args), args.json)


def _check(args: argparse.Namespace) -> None:
    """Refuses options that the action would ignore."""
    # The user may expect that they exclude jobs.
    narrowed = _narrows(args)
    if args.key and not args.task:
        raise UsageError("--key of which task? Keys are each task's own: add --task")
    if args.names and (narrowed or args.action == "list"):
        raise UsageError(f"give ids, or {NARROWING}, not both; `tarry jobs show ID` shows one job")
    if args.limit is not None and (args.names or args.action not in READING):
        raise UsageError(
            "--limit is for `tarry jobs list`, and for show and why without ids; else all that match count"
        )
    if args.limit is not None and args.limit < 1:
        raise UsageError(f"--limit {args.limit}: 1 or more")


def _narrows(args: argparse.Namespace) -> bool:
    return bool(args.queue or args.task or args.state or args.older or args.since or args.key)


def _query(client: Client, args: argparse.Namespace) -> Query:
    older = None if args.older is None else client.clock.now() - _duration("--older", args.older)
    states = tuple(State(state) for state in args.state)
    return Query(states, args.queue, args.task, args.key, older, limit=args.limit or LISTED)


def _pages(client: Client, args: argparse.Namespace) -> Iterator[list[Job]]:
    """All that match."""
    pages = find_pages(client, _query(client, args))
    if not args.since:
        return pages
    # The times of jobs are by the store's clock.
    first = client.clock.now() - round((time.time() - parse_since(args.since)) * SECOND)
    return ([job for job in page if job.state_since >= first] for page in pages)


def _duration(option: str, text: str) -> int:
    """Microseconds; UsageError."""
    with contextlib.suppress(ValueError):
        return microseconds(float(text))
    try:
        return microseconds(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _list(setup: CommandContext, args: argparse.Namespace) -> int:
    client = setup.client
    jobs = _first(client, args)
    attempts = Attempts(setup, jobs)
    if args.json:
        print_json([job_record(job, attempts.maximum(job)) for job in jobs])
        return 0
    now = client.clock.now()
    rows = [
        (
            ids.text(job.id),
            job.task,
            job.queue,
            job.state.value,
            job.priority,
            attempts.text(job),
            # A blocked job has at most a delay after its release.
            format_ago(job.due, now) if job.due >= RELATIVE else "-",
        )
        for job in jobs
    ]
    print_table(("id", "task", "queue", "state", "priority", "attempt", "due"), rows)
    if len(jobs) == (args.limit or LISTED):
        say(f"The first {len(jobs)}; --limit shows more.")
    return 0


def _first(client: Client, args: argparse.Namespace) -> list[Job]:
    """The first that match, `--limit` at most."""
    if not args.since:
        return partial_answer(lambda: client.store.find(_query(client, args)))
    # The store has no filter for --since: read page by page until there are enough.
    return list(islice((job for page in _pages(client, args) for job in page), args.limit or LISTED))


def _select(client: Client, args: argparse.Namespace) -> list[Job]:
    """Those that are named, or the first that match; UsageError without either, JobNotFound."""
    if args.names or not _narrows(args):
        return _get_jobs(client, _named(args))
    if not (jobs := _first(client, args)):
        raise JobNotFound("no job matches; `tarry jobs list` shows what there is")
    return jobs


def _named(args: argparse.Namespace) -> list[str]:
    if not args.names:
        or_match = ", or those that match: --state dead --since 1h" if args.action in READING else ""
        raise UsageError(f"which job? tarry jobs {args.action} ID{or_match}")
    names: list[str] = args.names
    return names


def _get_jobs(client: Client, names: list[str]) -> list[Job]:
    found = client.store.get([ids.parse(name) for name in names])
    for name, job in zip(names, found, strict=True):
        if job is None:
            raise JobNotFound(f"no job {name}: it never existed, or its time of keeping is over")
    return [job for job in found if job is not None]


def _jobs_with_key(client: Client, args: argparse.Namespace) -> list[Job]:
    """The unfinished jobs with the key; JobNotFound."""
    jobs = [job for page in _pages(client, args) for job in page if not job.state.finished]
    if not jobs:
        raise JobNotFound(f"no unfinished job of {args.task} has the key {args.key}")
    return jobs


def _change_matching(args: argparse.Namespace) -> int:
    """Changes all that match, as an operation."""
    if not _narrows(args):
        raise UsageError(f"{args.action} which jobs? Give ids, or narrow with {NARROWING}")
    setup = CommandContext.of(args)
    call = CommandCall(setup, args, start_operation, SUBJECT, args.action)
    try:
        (record,) = call_all(setup, start_operation, [call], {"body": _operation(setup.client, args)}).values()
    except NotConfirmed:
        return 1
    said = (
        f"{record.changed:,} of {quantity(record.matched)} {DONE[args.action]}" if record.matched else "No job matches."
    )
    print_result(args.json, record, said)
    return 0


def _operation(client: Client, args: argparse.Namespace) -> NewOperation:
    if args.delay is not None or args.at is not None:
        raise UsageError("--delay and --at are for jobs that are named by their ids")
    # The times of jobs are by the store's clock.
    passed = time.time() - parse_since(args.since) if args.since else None
    since = None if passed is None else max(0, client.clock.now() / SECOND - passed)
    older = None if args.older is None else _duration("--older", args.older) / SECOND
    states = tuple(State(state) for state in args.state)
    chosen = JobFilter(args.queue, args.task, args.key, states, older, since)
    to = {"queue": args.to_queue, "priority": args.to_priority}
    target = convert_values({name: value for name, value in to.items() if value is not None}, MoveTarget, "target")
    return NewOperation(args.action, chosen, target, reason=args.reason or "")


def _print_each(
    _: CommandCall, names: Sequence[str], found: Sequence[JobRecord | CancelAnswer | None], done: str
) -> None:
    for name, one in zip(names, found, strict=True):
        what, detail = done, ""
        if isinstance(one, CancelAnswer):
            what, detail = done if one.cancelled else "left as it is", one.detail and f": {one.detail}"
        say(f"{name} {what}{detail}")


def _is_done(answer: PrintedJob) -> bool:
    return answer.cancelled if isinstance(answer, CancelAnswer) else is_done(answer)


DONE = {"retry": "made ready", "cancel": "cancelled", "delete": "deleted", "move": "moved"}
SUBJECT = Subject(
    (*METHODS, *REQUEST_METHODS),
    {
        **{action: partial(_print_each, done=done) for action, done in DONE.items()},
        "kill": partial(print_outcomes, done="killed"),
        "stack": print_outcomes,
    },
    "list, show, explain, retry, cancel, delete, move or kill jobs, or see where they are",
    """By id, or all that match --queue, --task, --key, --state, --older, --since. Changes of many ask first. why tells
    what holds a job back. Without ids, show and why are for the first that match. cancel says, of a job of an HTTP
    task, whether it was ever sent; with --task and --key it is for the job that holds the key. move gives waiting jobs
    another time, queue or priority. kill ends the present attempt of a running job, whatever its task does, on any
    host, and waits until its master has done so: the attempt counts as failed, and the job runs again if it has
    attempts left; with --outcome cancelled it does not. stack shows where a running job is.""",
    {"queue": "to-queue", "priority": "to-priority"},
    names="ID",
    own=dict.fromkeys(READING, _run_own),
    extra={"timeout": ASKING},
    is_done=_is_done,
)
