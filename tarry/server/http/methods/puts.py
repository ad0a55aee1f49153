"""`POST /v1/jobs`: one job, a list, or lines; all of them go through the ring."""

import re
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from typing import IO, Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tarry import errors
from tarry.client.handle import Handle
from tarry.model.checks.decoders import json_decoder
from tarry.model.job import Job, State
from tarry.operate.access import Scope
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import JSON
from tarry.operate.problem import NOT_JSON, RequestError, wrong_value
from tarry.server.http.method import ApiCall, api_method
from tarry.server.http.methods.put_request import PutRequest, make_job
from tarry.server.http.problem import Problem, kind_of, problem_of
from tarry.server.http.request_reader import header, media_type_of, read_body, read_lines
from tarry.store.rules import ids
from tarry.store.rules.partial_result import reachable_part
from tarry.tasks.arguments.options import Options
from tarry.tasks.lazy_asyncio import asyncio

LINES = ("application/x-ndjson", "application/jsonl")
MOST_JOBS = 10_000
"""In a list."""
MOST_LINES = 1_000_000
MOST_WRONG = 1000
"""Wrong lines of a request, each with an answer of its own; with more, the request ends there."""
CHUNK, CHUNK_BYTES = 1000, 8 * 2**20
"""Lines, and bytes of lines, that are committed together at most."""
_KEPT = 2**20
"""Bytes of answers that are kept in memory; more go into a temporary file."""
# Beside the arguments: options, and names.
_MOST_LINE_BESIDES = 2**16
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*(\d{1,9})\s*(?:$|[,;])", re.IGNORECASE)
# Less than a name may have: in a list and in lines each job adds its number.
_MOST_NAME = 180


class PutAnswer(Struct, frozen=True):
    """What became of a put."""

    id: str
    state: State | None
    """null: not known, since the job was there already and its store is away now."""
    is_new: bool | None
    """True: this job was stored. False: it was there already: the key or the name of the request was known. null: the
    store is away, and this server keeps the job until it is back."""


class PutItem(Struct, frozen=True, kw_only=True):
    """What became of one of several: `error` where it could not be put, else the fields of a PutAnswer."""

    id: str | UnsetType = UNSET
    state: State | UnsetType | None = UNSET
    is_new: bool | UnsetType | None = UNSET
    error: Problem | UnsetType = UNSET


_one = json_decoder(PutRequest)
_many = json_decoder(list[PutRequest])
_encode = msgspec.json.Encoder().encode
JobWithOptions = tuple[Job, Options]
T = TypeVar("T")


@api_method(
    "POST /v1/jobs",
    Scope.PUT,
    status=201,
    also={
        200: "The job was there already: its key or the name of the request was known.",
        202: "The store is away; this server keeps the job and stores it once it is back.",
        207: "Of several jobs some could not be put; the answer says which.",
    },
    errors=(errors.ArgumentError, errors.IdempotencyError, errors.BodyTooLarge, errors.UnknownTask, errors.Draining),
    body_types=(JSON, *LINES),
    reads=PutRequest | list[PutRequest],
    answers=PutAnswer | list[PutItem],
)
async def put_jobs(call: ApiCall) -> Response:
    """Puts a job, a list of jobs, or one job on each line.

    The answer comes once the jobs are stored. Of a list nothing is stored unless each of its jobs is right; lines
    (`application/x-ndjson`) are stored as they come, however many, and the answer has a line for each. With the header
    Idempotency-Key a request may be sent again: it is stored once. `Prefer: wait=5` says for how many seconds the
    sender waits: after that, what is not being stored yet is told that the server is busy, and is not stored."""
    service, request = call.service, call.request
    if not service.is_started:
        await service.start()
    kind = media_type_of(request)
    name = _request_name(request)
    if kind in LINES:
        return await _put_lines(call, name)
    if kind != JSON:
        raise RequestError(f"send Content-Type: {JSON} or {LINES[0]}, not {kind or 'none'}", "Content-Type", 415)
    body = await read_body(request, service.settings.max_request)
    try:
        if body.lstrip()[:1] == b"[":
            return await _put_list(call, _decode(_many, body), name)
        wanted = _decode(_one, body)
    except NOT_JSON as error:
        raise wrong_value(error, "body") from None
    job, options = _make(call, wanted, name)
    (found,) = await service.ring.aput((job,), (options,), _deadline(request))
    if isinstance(found, Exception):
        raise found
    if found.is_new:
        return Response(_encode(PutAnswer(found.id, job.state, True)), 201, media_type=JSON)
    (answer,) = await _answers(call, [(job, options)], [found])
    return Response(_encode(answer), 200 if found.is_new is False else 202, media_type=JSON)


async def _put_list(call: ApiCall, wanted: list[PutRequest], name: str | None) -> Response:
    if len(wanted) > MOST_JOBS:
        raise RequestError(f"{len(wanted)} jobs: at most {MOST_JOBS} in a list; lines have no such bound", "body", 413)
    made = []
    for at, each in enumerate(wanted):
        try:
            made.append(_make(call, each, name and f"{name}/{at}"))
        except errors.TarryError as error:
            kind = kind_of(error)
            if kind is None or kind.status in (401, 403, 429):
                raise
            field = getattr(error, "field", None)
            raise RequestError(f"[{at}]: {error}", f"[{at}]" + (f".{field}" if field else ""), 422) from error
    found = await call.service.ring.aput(*_apart(made), _deadline(call.request)) if made else []
    if found and all(isinstance(each, Exception) for each in found) and isinstance(found[0], Exception):
        # The store is away or full, or the server is busy: as for a single job.
        raise found[0]
    answers = await _answers(call, made, found)
    status = 207 if any(isinstance(answer, PutItem) for answer in answers) else 201
    return Response(_encode(answers), status, media_type=JSON)


async def _put_lines(call: ApiCall, name: str | None) -> Response:
    # Answers go out after the last line has come in: many clients read nothing before, and would wait for ever once
    # the buffers between are full.
    answers: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_KEPT)  # noqa: SIM115 - closed when it is sent
    try:
        failed = 0
        async for chunk in _line_chunks(call, name):
            made = [each for each in chunk if not isinstance(each, PutItem)]
            found = await _answers(call, made, await call.service.ring.aput(*_apart(made))) if made else []
            stored = iter(found)
            lines = [each if isinstance(each, PutItem) else next(stored) for each in chunk]
            failed += sum(isinstance(each, PutItem) for each in lines)
            answers.writelines(_encode(each) + b"\n" for each in lines)
            # Lines that are all wrong wait for nothing, and other requests are to have their turn.
            await asyncio.sleep(0)
    except BaseException:
        answers.close()
        raise
    answers.seek(0)
    return StreamingResponse(_pieces(answers), 207 if failed else 201, media_type=LINES[0])


async def _line_chunks(call: ApiCall, name: str | None) -> AsyncIterator[list[JobWithOptions | PutItem]]:
    """The jobs of the lines, and what is wrong with the others; as many at once as are committed together."""
    most = call.service.client.factory.max_body + _MOST_LINE_BESIDES
    chunk: list[JobWithOptions | PutItem] = []
    number = size = wrong = 0
    try:
        async for lines in read_lines(call.request, most):
            for line in lines:
                number += 1
                if number > MOST_LINES:
                    raise RequestError(f"more than {MOST_LINES} lines: send the others with another request", None, 413)
                if line.strip():
                    # Before the line: with it the chunk could be more than the ring takes at once.
                    if len(chunk) >= CHUNK or (chunk and size + len(line) > CHUNK_BYTES):
                        yield chunk
                        chunk, size = [], 0
                    chunk.append(_make_line(call, line, number, name))
                    size += len(line)
                    wrong += isinstance(chunk[-1], PutItem)
                if wrong > MOST_WRONG:
                    raise RequestError(
                        f"more than {MOST_WRONG} lines are wrong: correct them, and send the rest", None, 413
                    )
    except RequestError as error:
        # Jobs before it are stored, so the answer has to tell of those.
        chunk.append(PutItem(error=problem_of(error)))
    if chunk:
        yield chunk


def _make_line(call: ApiCall, line: bytes, number: int, name: str | None) -> JobWithOptions | PutItem:
    try:
        return _make(call, _decode(_one, line), name and f"{name}/{number}")
    except NOT_JSON as error:
        problem = problem_of(wrong_value(error, f"line {number}"))
    except errors.TarryError as error:
        problem = problem_of(error)
    return PutItem(error=problem)


async def _pieces(answers: IO[bytes]) -> AsyncIterator[bytes]:
    with answers:
        while piece := answers.read(2**16):
            yield piece


def _make(call: ApiCall, wanted: PutRequest, name: str | None) -> JobWithOptions:
    task = call.service.app.tasks.get(wanted.task)
    # First: what a task takes is nothing for those who may not put it.
    call.caller.check_task(wanted.task, None if task is None else task.queue)
    made = make_job(call.service.client, wanted, name, call.caller.namespace)
    call.check(made[0].queue)
    if made[1].on_waiting != "return" and not call.allows(EVERY_QUEUE):
        said = "running=cancel" if wanted.running == "cancel" else f"on_duplicate={wanted.on_duplicate}"
        # The job with this key may have been moved to any queue.
        raise errors.NotAllowed(f"{said} may change a job of another queue, and this token is not for all")
    return made


def _decode(decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    """The value; an error of NOT_JSON."""
    # The decoder does not look into the strings of arguments.
    if not text.isascii():
        text.decode()
    return decoder.decode(text)


def _apart(made: Sequence[JobWithOptions]) -> tuple[list[Job], list[Options]]:
    return [job for job, _ in made], [options for _, options in made]


async def _answers(
    call: ApiCall, made: Sequence[JobWithOptions], found: Sequence[Handle[Any] | Exception]
) -> list[PutAnswer | PutItem]:
    """What to say of each of these jobs."""
    known = [ids.parse(each.id) for each in found if isinstance(each, Handle) and each.is_new is False]
    there = dict(zip(known, await _states(call, known), strict=True)) if known else {}
    answers: list[PutAnswer | PutItem] = []
    for (job, _), each in zip(made, found, strict=True):
        if isinstance(each, Exception):
            answers.append(PutItem(error=problem_of(each)))
        else:
            # A job that was stored just now is as it was made; of one that was there before, the store knows.
            state = job.state if each.is_new is not False else there[ids.parse(each.id)]
            answers.append(PutAnswer(each.id, state, each.is_new))
    return answers


async def _states(call: ApiCall, known: Sequence[bytes]) -> list[State | None]:
    """Their states; None where a job is gone, or its store is away."""
    found = await call.run(reachable_part, lambda: call.service.client.fetch(known))
    return [job and job.state for job in found]


def _request_name(request: Request) -> str | None:
    """The value of Idempotency-Key; the quotes that its draft asks for are left out."""
    name = header(request, b"idempotency-key")
    if name is None:
        return None
    name = name.strip()
    if len(name) > 1 and name[0] == name[-1] == '"':
        name = name[1:-1]
    if not 0 < len(name) <= _MOST_NAME:
        raise RequestError(f"Idempotency-Key: 1 to {_MOST_NAME} characters", "Idempotency-Key", 422)
    return name


def _deadline(request: Request) -> float | None:
    """When the sender stops waiting, by `time.monotonic()`; None: it does not say."""
    # RFC 7240, section 4.3.
    said = header(request, b"prefer")
    found = None if said is None else _WAIT.search(said)
    return None if found is None else time.monotonic() + int(found[1])


METHODS = (put_jobs,)
