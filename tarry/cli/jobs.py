"""`tarry jobs`: look at jobs, and change them, one or many."""

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from tarry.cli.host_requests import TIMEOUT, kill_jobs
from tarry.cli.job_report import explain, show
from tarry.cli.moment import parse_since
from tarry.cli.printing import (
    confirm,
    format_ago,
    partial_answer,
    print_json,
    print_result,
    print_table,
    progress_bar,
)
from tarry.cli.push.attempts import Attempts
from tarry.client.bulk import change_jobs, find_pages
from tarry.client.client import Client
from tarry.client.job_records import job_record
from tarry.client.operations.operation import EVENTS
from tarry.errors import JobNotFound, UsageError
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import SECOND, microseconds
from tarry.model.flow.rules import refusal
from tarry.model.job import RELATIVE, Job, State
from tarry.model.quantity import quantity
from tarry.process.loading import Setup
from tarry.store import ids
from tarry.store.base import Query
from tarry.terminal import say

LISTED = 50
ACTIONS = ("list", "show", "why", "retry", "cancel", "delete", "kill")
READING = ("list", "show", "why")
NARROWING = "--queue --task --key --state --older --since"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "jobs",
        help="list, show, explain, retry, cancel, delete or kill jobs",
        description="""By id, or all that match --queue, --task, --key, --state, --older, --since. Changes of many ask
        first. why tells what holds a job back. Without ids, show and why are for the first that match. cancel says, of
        a job of an HTTP task, whether it was ever sent; with --task and --key it is for the job that holds the key.
        kill ends the present attempt of a running job, whatever its task does, on any host, and waits until its master
        has done so: the attempt counts as failed, and the job runs again if it has attempts left; with --outcome
        cancelled it does not.""",
    )
    command.add_argument("action", nargs="?", choices=ACTIONS, default="list")
    command.add_argument("ids", nargs="*", metavar="ID")
    command.add_argument("--queue")
    command.add_argument("--task")
    command.add_argument("--state", action="append", choices=[state.value for state in State], default=[])
    command.add_argument("--key", help="the unique key that they were enqueued with; with --task")
    command.add_argument("--since", help='in their state since that time or later: "2h" (ago), "2026-11-22T03:00Z"')
    command.add_argument("--older", help='in their state for longer than this, such as "1h"')
    command.add_argument("--limit", type=int, help=f"list, show, why: at most so many ({LISTED})")
    command.add_argument("--outcome", choices=("failed", "cancelled"), help="what becomes of a killed job (failed)")
    command.add_argument("--timeout", type=float, help=f"kill: give up waiting after so many seconds ({TIMEOUT:g})")
    command.add_argument("--yes", action="store_true", help="do not ask")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 1 where nothing could be done."""
    _check(args)
    setup = Setup.of(args)
    client = setup.client
    if args.action == "list":
        return _list(setup, args)
    if args.action in ("show", "why"):
        report = show if args.action == "show" else explain
        return report(setup, _select(client, args), args.json)
    if args.action == "kill":
        # Ended one by one: all of them must exist before the first one is.
        return kill_jobs(client, _get_jobs(client, _named(args)), args)
    if args.action == "cancel":
        # Only the HTTP tasks can say whether a job was ever sent.
        setup.known_tasks()
        if args.ids or args.key:
            return _cancel(setup, args)
    return _change_named(client, args) if args.ids else _change_matching(client, args)


def _check(args: argparse.Namespace) -> None:
    """Refuses options that the action would ignore."""
    # The user may expect that they exclude jobs.
    narrowed = _narrows(args)
    if args.key and not args.task:
        raise UsageError("--key of which task? Keys are each task's own: add --task")
    if args.ids and (narrowed or args.action == "list"):
        raise UsageError(f"give ids, or {NARROWING}, not both; `tarry jobs show ID` shows one job")
    if args.action != "kill" and (args.outcome or args.timeout is not None):
        raise UsageError(f"--outcome and --timeout are for `tarry jobs kill`, not for {args.action}")
    if args.limit is not None and (args.ids or args.action not in READING):
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


def _list(setup: Setup, args: argparse.Namespace) -> int:
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
    if args.ids or not _narrows(args):
        return _get_jobs(client, _named(args))
    if not (jobs := _first(client, args)):
        raise JobNotFound("no job matches; `tarry jobs list` shows what there is")
    return jobs


def _named(args: argparse.Namespace) -> list[str]:
    if not args.ids:
        or_match = ", or those that match: --state dead --since 1h" if args.action in READING else ""
        raise UsageError(f"which job? tarry jobs {args.action} ID{or_match}")
    names: list[str] = args.ids
    return names


def _get_jobs(client: Client, names: list[str]) -> list[Job]:
    found = client.store.get([ids.parse(name) for name in names])
    for name, job in zip(names, found, strict=True):
        if job is None:
            raise JobNotFound(f"no job {name}: it never existed, or its time of keeping is over")
    return [job for job in found if job is not None]


def _change_rule(action: str, client: Client) -> tuple[Callable[[Job, int], Change], str]:
    match action:
        case "retry":
            return lifecycle.run_now, "made ready"
        case "cancel":
            return client.cancel_change, "cancelled"
    return lambda job, now: lifecycle.forget(job), "deleted"


def _change_named(client: Client, args: argparse.Namespace) -> int:
    # All of them must exist before the first one is changed.
    jobs = _get_jobs(client, args.ids)
    act = {"retry": client.retry, "delete": client.forget}[args.action]
    made = {ids.text(job.id): act(job.id) for job in jobs}
    if args.json:
        print_json(made)
    else:
        _, done = _change_rule(args.action, client)
        for job in jobs:
            name = ids.text(job.id)
            say(f"{name} {done}" if made[name] else f"{name} left as it is: {refusal(job) or job.state}")
    return 0 if all(made.values()) else 1


def _jobs_with_key(client: Client, args: argparse.Namespace) -> list[Job]:
    """The unfinished jobs with the key; JobNotFound."""
    jobs = [job for page in _pages(client, args) for job in page if not job.state.finished]
    if not jobs:
        raise JobNotFound(f"no unfinished job of {args.task} has the key {args.key}")
    return jobs


def _cancel(setup: Setup, args: argparse.Namespace) -> int:
    """Cancels one by one; for jobs of HTTP tasks it prints whether they were ever sent."""
    client = setup.client
    jobs = _get_jobs(client, args.ids) if args.ids else _jobs_with_key(client, args)
    answers: dict[str, Any] = {}
    for job in jobs:
        task, name = client.tasks.get(job.task), ids.text(job.id)
        if task is not None and task.runner is not None:
            answers[name] = answer = setup.home.http.cancel(job.id)
            done, reason = answer.cancelled, answer.said
        else:
            answers[name] = done = client.cancel(job.id)
            reason = "" if done else refusal(job) or str(job.state)
        if not args.json:
            say(f"{name} {'cancelled' if done else 'left as it is'}{reason and f': {reason}'}")
    if args.json:
        print_json(answers)
    return 0 if all(getattr(answer, "cancelled", answer) for answer in answers.values()) else 1


def _change_matching(client: Client, args: argparse.Namespace) -> int:
    # Without any filter, the action would change every job in the store.
    if not args.since and _query(client, args) == Query(limit=LISTED):
        raise UsageError(f"{args.action} which jobs? Give ids, or narrow with {NARROWING}")
    # Counted first, since the question names the number.
    total = sum(map(len, _pages(client, args)))
    rule, done = _change_rule(args.action, client)
    if not total:
        print_result(args.json, {"matched": 0, "changed": 0}, "No job matches.")
        return 0
    match, them = ("matches", "it") if total == 1 else ("match", "them")
    if not confirm(f"{quantity(total)} {match}; {args.action} {them}?", args.yes):
        return 1
    pages = progress_bar(_pages(client, args), -(-total // 1000), "page")
    made = sum(change_jobs(client, page, rule, EVENTS[args.action]) for page in pages)
    if args.action == "cancel":
        # Workers must hear of the cancelled jobs that they run.
        client.store.wake_for_recall()
    print_result(args.json, {"matched": total, "changed": made}, f"{made:,} of {quantity(total)} {done}")
    return 0
