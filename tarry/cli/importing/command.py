"""`tarry import celery URL`: moves what waits in Celery's broker into tarry."""

import argparse
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from msgspec import Struct

from tarry.cli.importing.jobs import job_of
from tarry.cli.importing.message import UnreadableMessage, read_message
from tarry.cli.printing import print_json, progress_bar
from tarry.client.client import Client
from tarry.model.job import Job
from tarry.process.loading import Setup
from tarry.terminal import say

STORED_AT_ONCE = 100
LISTED = 20


class ImportTally(Struct):
    """What became of the messages. left: those that stay in the broker, each with its queue and why."""

    stored: int = 0
    known: int = 0
    left: list[tuple[str, str]] = []


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "import",
        help="take over the jobs that wait in Celery's broker",
        description="""Moves the messages of a Redis that is Celery's broker into tarry: each is removed there once it
        is stored here, and one that cannot be read stays and is listed. Stop Celery's workers first: a message that one
        of them takes meanwhile would be done twice. A second run stores nothing twice. Pickle is never read.""",
    )
    command.add_argument("kind", choices=["celery"], help="whose broker it is")
    command.add_argument("url", metavar="URL", help="redis://host:6379/0")
    command.add_argument("--queue", action="append", metavar="NAME", help="only this one; may be given again")
    command.add_argument("--unacked", action="store_true", help="also what workers took and did not acknowledge")
    command.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    command.add_argument("--force", action="store_true", help="also tasks that the app does not have")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 1 if messages stay in the broker."""
    # Its driver is needed by nobody else.
    from tarry.cli.importing.broker import CeleryBroker  # noqa: PLC0415

    setup, tally = Setup.of(args), ImportTally()
    setup.known_tasks()
    with closing(CeleryBroker(args.url)) as broker:
        queues = args.queue or broker.queues()
        total = sum(map(broker.size, queues))
        found = progress_bar(_messages(broker, queues, args.unacked), total, "messages")
        while chunk := list(islice(found, STORED_AT_ONCE)):
            _move(setup.client, broker, chunk, args, tally)
    _report(args, tally)
    return 1 if tally.left else 0


def _messages(broker: Any, queues: list[str], unacked: bool) -> Iterator[tuple[Any, bytes, str]]:
    for queue in queues:
        yield from ((place, raw, queue) for place, raw in broker.messages(queue))
    if unacked:
        yield from (each for each in broker.unacked() if each[2] in queues)


def _move(
    client: Client, broker: Any, chunk: list[tuple[Any, bytes, str]], args: argparse.Namespace, tally: ImportTally
) -> None:
    jobs: dict[bytes, Job] = {}
    places = []
    for place, raw, queue in chunk:
        try:
            job = job_of(client, read_message(raw), queue, args.force)
        except UnreadableMessage as error:
            tally.left.append((queue, str(error)))
        else:
            jobs[job.id] = job
            places.append(place)
    if args.dry_run:
        tally.stored += len(jobs)
        return
    there = {job.id for job in client.fetch(list(jobs)) if job is not None}
    client.insert_jobs([job for id, job in jobs.items() if id not in there])
    tally.known += len(places) - len(jobs) + len(there)
    tally.stored += len(jobs) - len(there)
    # Only now: a crash before this line leaves them in both places, and the next run finds the jobs by their ids.
    for place in places:
        broker.remove(place)


def _report(args: argparse.Namespace, tally: ImportTally) -> None:
    if args.json:
        left = [{"queue": queue, "why": why} for queue, why in tally.left]
        print_json({"stored": tally.stored, "already_there": tally.known, "left": left, "dry_run": args.dry_run})
        return
    say(f"{tally.stored:,} {'would be stored' if args.dry_run else 'stored'}" + _also(tally))
    for queue, why in tally.left[:LISTED]:
        say(f"  left in {queue}: {why}")
    if len(tally.left) > LISTED:
        say(f"  and {len(tally.left) - LISTED:,} more; --json lists all")


def _also(tally: ImportTally) -> str:
    known = f", {tally.known:,} were there already" if tally.known else ""
    return known + (f", {len(tally.left):,} cannot be read and stay" if tally.left else "")
