"""`tarry jobs`, in words: one job or many."""

import argparse
import contextlib
import time
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from tarry.cli.operate.job_report import attempt_text, print_details, print_reasons
from tarry.cli.operate.method_command import (
    CommandCall,
    Subject,
    Words,
    add_methods,
    call_all,
    read_options,
    run_method,
)
from tarry.cli.shared.host_requests import TIMEOUT, is_done, print_outcomes
from tarry.cli.shared.moment import parse_since
from tarry.cli.shared.printing import NotConfirmed, format_ago, print_result, print_table
from tarry.client.job_records import JobRecord, JobTerms
from tarry.client.operations.operation import JobFilter, MoveTarget
from tarry.errors import JobNotFound, UsageError
from tarry.keeper.keeper_records import RequestRecord
from tarry.model.duration import SECOND, microseconds
from tarry.model.job import RELATIVE, State, parse_labels
from tarry.model.quantity import quantity
from tarry.operate.hosts import METHODS as HOST_METHODS
from tarry.operate.jobs import METHODS, CancelAnswer, JobAnswer, JobPage, JobsQuery, WhyAnswer, list_jobs
from tarry.operate.method import convert_values
from tarry.operate.operations import NewOperation, start_operation
from tarry.process.loading import CommandContext
from tarry.terminal import print_line

PrintedJob = JobRecord | CancelAnswer | RequestRecord | WhyAnswer | JobPage | JobAnswer | None
LOOKING, ASKING = ("show", "why"), ("kill", "stack")
WITH_ARGUMENTS = ("edit", "clone")
_PAGE = ("limit", "cursor", "order")
FILTER = tuple(name for name in JobsQuery.__struct_fields__ if name not in _PAGE)
"""The options that say which jobs."""
OF_OPERATIONS = ("queue", "task", "key", "label", "state", "older", "since", "q")
"""Those of them that a change of many jobs takes."""
NARROWING = " ".join(f"--{name}" for name in OF_OPERATIONS)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = add_methods("jobs", SUBJECT, commands)
    command.add_argument(
        "--timeout", type=float, help=f"kill, stack: give up waiting after so many seconds ({TIMEOUT:g})"
    )
    command.add_argument("--yes", action="store_true", help="do not ask")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 1 where nothing could be done."""
    if args.action == "list" and args.names and not args.q:
        args.q, args.names = " ".join(args.names), []
    _check(args)
    setup = CommandContext.of(args)
    if args.since:
        # The times of jobs are by the store's clock.
        args.since = time.time() - parse_since(args.since)
    if not args.names and args.action not in ("list", *ASKING, *WITH_ARGUMENTS):
        by_key = args.action == "cancel" and args.key
        if args.action not in LOOKING and not by_key:
            return _change_matching(setup, args)
        if _narrows(args):
            args.names = _find_unfinished(setup, args) if by_key else _find(setup, args)
        elif args.action in LOOKING:
            raise UsageError(f"which job? tarry jobs {args.action} ID, or those that match: --state dead --since 1h")
    if args.action == "edit":
        from tarry.cli.operate.job_edit import edited_arguments  # noqa: PLC0415 - few commands edit

        with edited_arguments(setup, args):
            return run_method("jobs", SUBJECT, args, setup)
    return run_method("jobs", SUBJECT, args, setup)


def _read_arguments(args: argparse.Namespace) -> Words:
    from tarry.cli.operate.job_edit import decode_arguments  # noqa: PLC0415 - few commands edit

    return args.names, {} if args.args is None else {"args": decode_arguments(args.args)}


def _check(args: argparse.Namespace) -> None:
    """Refuses options that the action would ignore, and labels that are none."""
    try:
        parse_labels(args.label or ())
    except ValueError as error:
        raise UsageError(f"--label: {error}") from None
    if args.key and not args.task:
        raise UsageError("--key of which task? Keys are each task's own: add --task")
    # The user may expect that they exclude jobs.
    if args.names and (_narrows(args) or args.action == "list"):
        raise UsageError(f"give ids, or {NARROWING}, not both; `tarry jobs show ID` shows one job")
    if args.limit is not None and (args.names or args.action not in ("list", *LOOKING)):
        raise UsageError(
            "--limit is for `tarry jobs list`, and for show and why without ids; else all that match count"
        )


def _narrows(args: argparse.Namespace) -> bool:
    return any(getattr(args, name) for name in FILTER)


def _list(setup: CommandContext, args: argparse.Namespace) -> JobPage:
    """The first that match. The options that say so are then taken: the method that is called next has none of
    them."""
    listing = argparse.Namespace(**{**vars(args), "action": "list"})
    call = CommandCall(setup, listing, list_jobs, SUBJECT, "")
    (page,) = call_all(setup, list_jobs, [call], read_options(list_jobs, SUBJECT, listing)).values()
    for name in (*FILTER, *_PAGE):
        setattr(args, name, None)
    found: JobPage = page
    return found


def _find(setup: CommandContext, args: argparse.Namespace) -> list[str]:
    """The ids of the first that match; JobNotFound."""
    if not (found := _list(setup, args).jobs):
        raise JobNotFound("no job matches; `tarry jobs list` shows what there is")
    return [job.id for job in found]


def _find_unfinished(setup: CommandContext, args: argparse.Namespace) -> list[str]:
    """The ids of the unfinished jobs with the key; JobNotFound."""
    task, key = args.task, args.key
    found = [job.id for job in _list(setup, args).jobs if not job.state.finished]
    if not found:
        raise JobNotFound(f"no unfinished job of {task} has the key {key}")
    return found


def _print_list(call: CommandCall, found: JobPage) -> None:
    now = call.client.clock.now()
    rows = [
        (
            job.id,
            job.task,
            job.queue,
            job.state.value,
            job.priority,
            attempt_text(job),
            # A blocked job has at most a delay after its release.
            format_ago(round(job.due * SECOND), now) if job.due >= RELATIVE / SECOND else "-",
        )
        for job in found.jobs
    ]
    print_table(("id", "task", "queue", "state", "priority", "attempt", "due"), rows)
    if found.examined > len(rows):
        print_line(f"Looked at {quantity(found.examined)}.")
    if found.next is not None:
        print_line(f"The first {len(rows)}; --limit shows more, --cursor {found.next} what follows.")


def _change_matching(setup: CommandContext, args: argparse.Namespace) -> int:
    """Changes all that match, as an operation."""
    for name in (*FILTER, *_PAGE):
        if name not in OF_OPERATIONS and getattr(args, name) is not None:
            raise UsageError(f"{args.action} takes no --{name.replace('_', '-')}; narrow with {NARROWING}")
    if not any(getattr(args, name) for name in OF_OPERATIONS):
        raise UsageError(f"{args.action} which jobs? Give ids, or narrow with {NARROWING}")
    call = CommandCall(setup, args, start_operation, SUBJECT, args.action)
    try:
        (record,) = call_all(setup, start_operation, [call], {"body": _operation(setup, args)}).values()
    except NotConfirmed:
        return 1
    said = (
        f"{record.changed:,} of {quantity(record.matched)} {DONE[args.action]}" if record.matched else "No job matches."
    )
    print_result(args.json, record, said)
    return 0


def _operation(setup: CommandContext, args: argparse.Namespace) -> NewOperation:
    if args.delay is not None or args.at is not None:
        raise UsageError("--delay and --at are for jobs that are named by their ids")
    since = None if not args.since else max(0, setup.client.clock.now() / SECOND - args.since)
    older = None if args.older is None else _duration("--older", args.older) / SECOND
    states = [State(state) for state in args.state or ()]
    terms = JobTerms(states, args.queue, args.task, args.key, list(args.label or ()), older)
    chosen = replace(JobFilter.of(terms, 0), since=since)
    to = {"queue": args.to_queue, "priority": args.to_priority}
    target = convert_values({name: value for name, value in to.items() if value is not None}, MoveTarget, "target")
    return NewOperation(args.action, chosen, target, reason=args.reason or "", q=args.q or "")


def _duration(option: str, text: str) -> int:
    """Microseconds; UsageError."""
    with contextlib.suppress(ValueError):
        return microseconds(float(text))
    try:
        return microseconds(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _print_each(
    _: CommandCall, names: Sequence[str], found: Sequence[JobRecord | CancelAnswer | None], done: str
) -> None:
    for name, one in zip(names, found, strict=True):
        what, detail = done, ""
        if isinstance(one, CancelAnswer):
            what, detail = done if one.cancelled else "left as it is", one.detail and f": {one.detail}"
        print_line(f"{name} {what}{detail}")


def _print_edited(_: CommandCall, names: Sequence[str], found: Sequence[JobAnswer]) -> None:
    for one in found:
        print_line(f"{one.id} has other arguments; it is {one.state}")


def _print_clones(_: CommandCall, names: Sequence[str], found: Sequence[JobRecord]) -> None:
    for name, one in zip(names, found, strict=True):
        print_line(f"{one.id} is a clone of {name}; it is {one.state}")


def _is_done(answer: PrintedJob) -> bool:
    return answer.cancelled if isinstance(answer, CancelAnswer) else is_done(answer)


DONE = {"retry": "made ready", "cancel": "cancelled", "delete": "deleted", "move": "moved"}
SUBJECT = Subject(
    (*METHODS, *HOST_METHODS),
    {
        **{action: partial(_print_each, done=done) for action, done in DONE.items()},
        "list": _print_list,
        "show": print_details,
        "why": print_reasons,
        "kill": partial(print_outcomes, done="killed"),
        "stack": print_outcomes,
        "edit": _print_edited,
        "clone": _print_clones,
    },
    "list, show, explain, retry, cancel, delete, move, edit, clone or kill jobs, or see where they are",
    """By id, or all that match --queue, --task, --key, --label, --state, --older, --since, or a line: tarry jobs list
    'state:dead task:shop.* error:timeout since:2d customer:7', for other actions with --q. Changes of many ask first.
    why tells what holds a job back. Without ids, show and why are for the first that list shows. cancel says, of a job
    of an HTTP task, whether it was ever sent; with --task and --key it is for the job that holds the key. move gives
    waiting jobs another time, queue or priority. kill ends the present attempt of a running job, whatever its task
    does, on any host, and waits until its master has done so: the attempt counts as failed, and the job runs again if
    it has attempts left; with --outcome cancelled it does not. stack shows where a running job is. edit gives a job
    that waits, is dead or was cancelled other arguments: those of --args, or what you make of the present ones in your
    EDITOR; --retry makes it ready, too. clone puts a new job with the same call, or with other --args.""",
    {"move queue": "to-queue", "move priority": "to-priority"},
    names="ID",
    words=dict.fromkeys(WITH_ARGUMENTS, _read_arguments),
    extra={"timeout": ASKING},
    is_done=_is_done,
)
