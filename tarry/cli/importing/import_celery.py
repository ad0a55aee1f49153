"""`tarry import celery URL`: moves what waits in Celery's broker into tarry."""

import argparse
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any

from msgspec import Struct

from tarry.cli.importing.celery_message import UnreadableMessage, read_message
from tarry.cli.importing.jobs import job_of
from tarry.cli.operate.method_command import CommandCall, Subject, Words, add_methods, command_method
from tarry.cli.shared.printing import progress_bar
from tarry.client.client import Client
from tarry.errors import UsageError
from tarry.model.job import Job
from tarry.model.quantity import Short
from tarry.store.rules import ids
from tarry.terminal import print_line

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


class ImportOptions(Struct, frozen=True):
    """What to take over."""

    url: Short
    queue: list[Short] = []
    """Only this one; may be given again."""
    key_prefix: Short = ""
    """`global_keyprefix` of Celery's settings."""
    unacked: bool = False
    """Also what workers took and did not acknowledge."""
    dry_run: bool = False
    """Say what would be done, and do nothing."""
    force: bool = False
    """Also tasks that the app does not have."""


class LeftMessage(Struct, frozen=True):
    """A message that stays in the broker."""

    queue: str
    why: str


class ImportAnswer(Struct, frozen=True):
    """What became of the messages: see `ImportTally`."""

    stored: int
    already_there: int
    left: list[LeftMessage]
    dry_run: bool
    taken_meanwhile: int
    done_twice: list[str]


@command_method("import celery")
def import_celery(call: CommandCall, body: ImportOptions) -> ImportAnswer:
    """Moves what waits in Celery's broker into tarry."""
    # Its driver is needed by nobody else.
    from tarry.cli.importing.broker import CeleryBroker  # noqa: PLC0415

    tally = ImportTally()
    # Not the URL: it may have a password.
    call.subject = f"queue={','.join(body.queue)}" if body.queue else ""
    call.sync_tasks()
    with closing(CeleryBroker(body.url, body.key_prefix)) as broker:
        queues = body.queue or broker.queues()
        total = sum(map(broker.size, queues))
        found = progress_bar(_messages(broker, queues, body.unacked), total, "messages")
        while chunk := list(islice(found, STORED_AT_ONCE)):
            move(call.client, broker, chunk, body, tally)
    left = [LeftMessage(*each) for each in tally.left]
    return ImportAnswer(tally.stored, tally.known, left, body.dry_run, tally.taken, tally.running)


def _messages(broker: Any, queues: list[str], unacked: bool) -> Iterator[tuple[Any, bytes, str]]:
    for queue in queues:
        yield from ((place, raw, queue) for place, raw in broker.messages(queue))
    if unacked:
        yield from (each for each in broker.unacked() if each[2] in queues)


def move(
    client: Client, broker: Any, chunk: list[tuple[Any, bytes, str]], options: ImportOptions, tally: ImportTally
) -> None:
    """Stores the jobs of these messages, and takes the messages out."""
    jobs: dict[bytes, Job] = {}
    places: list[tuple[Any, bytes]] = []
    for place, raw, queue in chunk:
        try:
            job = job_of(client, read_message(raw), queue, options.force)
        except UnreadableMessage as error:
            tally.left.append((queue, str(error)))
        else:
            jobs[job.id] = job
            places.append((place, job.id))
    if options.dry_run:
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


def _print(_: CommandCall, found: ImportAnswer) -> None:
    print_line(f"{found.stored:,} {'would be stored' if found.dry_run else 'stored'}" + _also(found))
    for id in found.done_twice[:LISTED]:
        print_line(f"  job {id}: a worker of Celery's took its message meanwhile, and it ran here too")
    for one in found.left[:LISTED]:
        print_line(f"  left in {one.queue}: {one.why}")
    if len(found.left) > LISTED:
        print_line(f"  and {len(found.left) - LISTED:,} more; --json lists all")


def _also(found: ImportAnswer) -> str:
    known = f", {found.already_there:,} were there already" if found.already_there else ""
    known += f", {found.taken_meanwhile:,} were taken by workers of Celery's meanwhile" if found.taken_meanwhile else ""
    return known + (f", {len(found.left):,} cannot be read and stay" if found.left else "")


def _read_url(args: argparse.Namespace) -> Words:
    if len(args.names) != 1:
        raise UsageError("from where? tarry import celery redis://host:6379/0")
    return (), {"url": args.names[0]}


SUBJECT = Subject(
    (import_celery,),
    {"celery": _print},
    "take over the jobs that wait in Celery's broker",
    """Moves the messages of a Redis that is Celery's broker into tarry: each is removed there once it is stored here,
    and one that cannot be read stays and is listed. Stop Celery's workers first; of a message that one of them takes
    meanwhile the job is taken back, unless it runs already. A second run stores nothing twice. Pickle is never read. Of
    other brokers, such as RabbitMQ, nothing can be taken over.""",
    names="URL",
    words={"celery": _read_url},
    worded=("url",),
    # Else messages stay in the broker, or a job ran that Celery does, too.
    is_done=lambda found: not (found.left or found.done_twice),
)
add = partial(add_methods, "import", SUBJECT)
