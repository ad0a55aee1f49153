"""From a message of Celery's to a job of tarry, whose id is the same each time."""

from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from tarry.cli.importing.celery_message import CeleryMessage, UnreadableMessage
from tarry.client.client import Client
from tarry.client.job_factory import encode_call
from tarry.errors import TarryError
from tarry.model import lifecycle
from tarry.model.job import Job
from tarry.tasks.arguments.options import Options

# A message does not say when it was sent.
MADE = 1_577_836_800_000
"""Milliseconds: the time in all ids that are made here, the start of 2020."""
_TRIES = 1000


def job_of(client: Client, message: CeleryMessage, queue: str, force: bool) -> Job:
    """The job for a message of that queue; UnreadableMessage. force: also of a task that the app does not have."""
    options = Options(
        queue=queue,
        # With Redis, 0 is the first of Celery's priorities; here a higher number is earlier.
        priority=-message.priority,
        timeout=message.timeout or None,
    )
    try:
        job = _make(client, message, options.check(), force)
    except (TarryError, ValueError) as error:
        raise UnreadableMessage(str(error)) from None
    now = client.clock.now()
    due = job.due if message.due is None else message.due
    state = lifecycle.initial_state(due, now)
    found = replace(job, due=due, state=state, failures=message.retries, expires=message.expires or job.expires)
    return _with_id(client, found, message)


def _make(client: Client, message: CeleryMessage, options: Options, force: bool) -> Job:
    task = client.tasks.get(message.task)
    if task is not None:
        body, lane = encode_call(task, message.args, message.kwargs)
        options = task.with_cost(options, message.args, message.kwargs)
        return client.factory.make(task, body, lane, options)
    if not force:
        raise UnreadableMessage(f"the app has no task {message.task}; --force takes it for workers that know it")
    if message.args and message.kwargs:
        raise UnreadableMessage(
            f"{message.task}: which argument is which, only an app that has it can say: -a module:app"
        )
    return client.make_job(message.task, msgspec.json.encode(message.kwargs or message.args), options)


def _with_id(client: Client, job: Job, message: CeleryMessage) -> Job:
    # With several stores, the job of a task with limits has to be on the shard of its lane.
    for salt in range(_TRIES):
        found = replace(job, id=id_of(message, salt))
        if client.store.belongs(found):
            return found
    raise UnreadableMessage("no id was found that belongs to the shard of its lane")


def id_of(message: CeleryMessage, salt: int = 0) -> bytes:
    """A UUIDv7 that only depends on the message's id and its retries."""
    text = f"{message.id}\0{message.retries}\0{salt}".encode()
    bits = int.from_bytes(blake2b(text, digest_size=10).digest(), "big")
    value = MADE << 80 | 0x7 << 76 | (bits >> 62 & 0xFFF) << 64 | 0b10 << 62 | bits & (1 << 62) - 1
    return value.to_bytes(16, "big")
