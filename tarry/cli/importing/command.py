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
from tarry.process.loading import CommandContext
from tarry.store.rules import ids
from tarry.terminal import say

STORED_AT_ONCE = 100
LISTED = 20


class ImportTally(Struct):
    """What became of the messages. taken: by a worker of Celery's meanwhile. running: of these, the ids of jobs that
    could not be taken back, and are done twice. left: those that stay in the broker, each with its queue and why."""

    stored: int = 0
    known: int = 0
    taken: int = 0
    running: list[str] = []
    left: list[tuple[str, str]] = []


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "import",
        help="take over the jobs that wait in Celery's broker",
        description="""Moves the messages of a Redis that is Celery's broker into tarry: each is removed there once it
        is stored here, and one that cannot be read stays and is listed. Stop Celery's workers first; of a message that
        one of them takes meanwhile the job is taken back, unless it runs already. A second run stores nothing twice.
        Pickle is never read. Of other brokers, such as RabbitMQ, nothing can be taken over.""",
    )
    command.add_argument("action", metavar="celery", choices=["celery"], help="whose broker it is")
    command.add_argument("url", metavar="URL", help="redis://host:6379/0")
    command.add_argument("--queue", action="append", metavar="NAME", help="only this one; may be given again")
    command.add_argument("--key-prefix", default="", metavar="TEXT", help="global_keyprefix of Celery's settings")
    command.add_argument("--unacked", action="store_true", help="also what workers took and did not acknowledge")
    command.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    command.add_argument("--force", action="store_true", help="also tasks that the app does not have")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 1 if messages stay in the broker, or a job ran that Celery does, too."""
    # Its driver is needed by nobody else.
    from tarry.cli.importing.broker import CeleryBroker  # noqa: PLC0415

    setup, tally = CommandContext.of(args), ImportTally()
    setup.known_tasks()
    with closing(CeleryBroker(args.url, args.key_prefix)) as broker:
        queues = args.queue or broker.queues()
        total = sum(map(broker.size, queues))
        found = progress_bar(_messages(broker, queues, args.unacked), total, "messages")
        while chunk := list(islice(found, STORED_AT_ONCE)):
            move(setup.client, broker, chunk, args, tally)
    _report(args, tally)
    return 1 if tally.left or tally.running else 0


def _messages(broker: Any, queues: list[str], unacked: bool) -> Iterator[tuple[Any, bytes, str]]:
    for queue in queues:
        yield from ((place, raw, queue) for place, raw in broker.messages(queue))
    if unacked:
        yield from (each for each in broker.unacked() if each[2] in queues)


def move(
    client: Client, broker: Any, chunk: list[tuple[Any, bytes, str]], args: argparse.Namespace, tally: ImportTally
) -> None:
    """Stores the jobs of these messages, and takes the messages out."""
    jobs: dict[bytes, Job] = {}
    places: list[tuple[Any, bytes]] = []
    for place, raw, queue in chunk:
        try:
            job = job_of(client, read_message(raw), queue, args.force)
        except UnreadableMessage as error:
            tally.left.append((queue, str(error)))
        else:
            jobs[job.id] = job
            places.append((place, job.id))
    if args.dry_run:
        tally.stored += len(jobs)
        return
    there = {job.id for job in client.fetch(list(jobs)) if job is not None}
    client.insert_jobs([job for id, job in jobs.items() if id not in there])
    tally.known += len(places) - len(jobs) + len(there)
    tally.stored += len(jobs) - len(there)
    # Only now: a crash before this line leaves them in both places, and the next run finds the jobs by their ids.
    for place, id in places:
        if not broker.remove(place) and id not in there:
            _take_back(client, id, tally)


def _take_back(client: Client, id: bytes, tally: ImportTally) -> None:
    """A worker of Celery's has taken the message since it was read here: that one does it."""
    tally.taken += 1
    tally.stored -= 1
    if not client.forget(id):
        tally.running.append(ids.text(id))


def _report(args: argparse.Namespace, tally: ImportTally) -> None:
    if args.json:
        left = [{"queue": queue, "why": why} for queue, why in tally.left]
        facts = {"stored": tally.stored, "already_there": tally.known, "left": left, "dry_run": args.dry_run}
        print_json({**facts, "taken_meanwhile": tally.taken, "done_twice": tally.running})
        return
    say(f"{tally.stored:,} {'would be stored' if args.dry_run else 'stored'}" + _also(tally))
    for id in tally.running[:LISTED]:
        say(f"  job {id}: a worker of Celery's took its message meanwhile, and it ran here too")
    for queue, why in tally.left[:LISTED]:
        say(f"  left in {queue}: {why}")
    if len(tally.left) > LISTED:
        say(f"  and {len(tally.left) - LISTED:,} more; --json lists all")


def _also(tally: ImportTally) -> str:
    known = f", {tally.known:,} were there already" if tally.known else ""
    known += f", {tally.taken:,} were taken by workers of Celery's meanwhile" if tally.taken else ""
    return known + (f", {len(tally.left):,} cannot be read and stay" if tally.left else "")
