"""`tarry enqueue`: one job, or a file of them."""

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from tarry.cli.shared.printing import print_json, progress_bar, read_arguments
from tarry.client.client import Client
from tarry.errors import TarryError, UnknownTask, UsageError
from tarry.model.checks.decoders import decode_json
from tarry.model.job import Job, parse_labels
from tarry.model.nearest import did_you_mean
from tarry.model.quantity import quantity
from tarry.process.loading import CommandContext
from tarry.tasks.arguments.options import NO_OPTIONS, Options
from tarry.terminal import print_line

STORED_AT_ONCE = 1000


class BatchLine(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a batch without a task on the command line."""

    task: str
    args: list[Any] | dict[str, Any] = []
    delay: float | str | None = None
    at: datetime | float | None = None
    key: str | None = None
    priority: int | None = None
    queue: str | None = None
    expires: float | str | None = None
    labels: dict[str, str] | None = None
    cost: int | None = None


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "enqueue",
        help="put a job, or a file of jobs",
        description="""Puts one job and prints its id. ARGS is one JSON array (positional arguments) or object (by
        name); several, or a plain value, are positional arguments one by one. With --batch, each line of FILE is the
        ARGS of one job of TASK, or, without TASK, an object with "task", "args" and any of "delay", "at", "key",
        "priority", "queue", "expires", "labels" and "cost". Nothing is stored unless every line is right.""",
    )
    command.add_argument("task", nargs="?", help="the task's full name")
    command.add_argument("args", nargs="*", metavar="ARGS", help="JSON")
    command.add_argument("--delay", help='not before so long from now: seconds, or "5m"')
    command.add_argument("--at", help="not before: an ISO date and time; without a zone, this machine's")
    command.add_argument("--queue")
    command.add_argument("--key", help="at most one unfinished job of the task has it")
    command.add_argument(
        "--on-duplicate",
        choices=["return", "replace", "postpone"],
        default="return",
        help="what becomes of a job that waits and has the key: replace: it gets this call; postpone: it is due later",
    )
    command.add_argument("--max-delay", help="however often it is replaced or postponed: due so long after it was put")
    leading = "the first call of a key that was quiet for --delay is due at once, only those after it are put off"
    command.add_argument("--leading", action="store_true", help=leading)
    running = "what becomes of a job that runs and has the key: cancel: this one takes its place"
    command.add_argument("--running", choices=["return", "cancel"], default="return", help=running)
    command.add_argument("--priority", type=int, help="higher first; 0 is normal")
    command.add_argument("--expires", help="cancelled unless started within so long")
    command.add_argument(
        "--label",
        action="append",
        metavar="NAME=VALUE",
        help="a label by which it is found; may be given several times",
    )
    command.add_argument("--cost", type=int, metavar="N", help="how many starts a rate counts for it")
    command.add_argument("--batch", metavar="FILE", help="JSON lines; - for standard input")
    command.add_argument("--force", action="store_true", help="also a task that only workers know")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 0 once all is stored."""
    setup = CommandContext.of(args)
    if args.batch:
        _check_batch(args)
        return _batch(setup, args)
    if not args.task:
        raise UsageError("name the task to enqueue, or give --batch FILE; `tarry tasks` lists them")
    options = _options(args)
    setup.home.find(args.task)
    if not args.force:
        _refuse_unknown(setup, [args.task])
    job = setup.client.make_job(args.task, _body(args.args), options)
    handle = setup.client.insert_jobs([job], options)[0]
    if args.json:
        print_json({"id": handle.id, "is_new": handle.is_new})
    else:
        print_line(handle.id)
    return 0


def _options(args: argparse.Namespace) -> Options:
    at = _moment(args.at)
    try:
        labels = dict(parse_labels(args.label or ())) or None
        delay, expires = _number(args.delay), _number(args.expires)
        named = {
            "labels": labels, "running": args.running, "cost": args.cost, "on_duplicate": args.on_duplicate,
            "max_delay": _number(args.max_delay), "leading": args.leading,
        }  # fmt: skip
        return Options(delay, at, args.key, args.priority, args.queue, expires, **named).check()
    except ValueError as error:
        raise UsageError(str(error)) from None


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text).astimezone()
    # OverflowError: in another zone the time may lie before the year 1 or after 9999.
    except (ValueError, OverflowError):
        raise UsageError(
            f"--at {text!r} is no time: write it as in 2030-12-31T23:59 or 2030-12-31T23:59+01:00"
        ) from None


def _number(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        # A duration such as `5m`, which `Options.check` checks.
        return text


def _body(texts: list[str]) -> bytes:
    """The arguments as compact JSON; UsageError if they are not JSON."""
    return msgspec.json.encode(read_arguments(texts))


def _refuse_unknown(setup: CommandContext, tasks: Iterable[str]) -> None:
    """UnknownTask for the first unknown name."""
    known = setup.known_tasks()
    unknown = [task for task in tasks if task not in known]
    # Where no task at all is known, workers elsewhere may know this one.
    if unknown and (setup.app_name or known):
        meant = did_you_mean(unknown[0], known)
        whose = f"the app {setup.app_name} has" if setup.app_name else "there is"
        raise UnknownTask(f"{whose} no task {unknown[0]}{meant or ';'} --force puts it for workers that know it")


def _check_batch(args: argparse.Namespace) -> None:
    """Refuses options that a batch would ignore."""
    # The user may rely on their effect.
    if args.args:
        raise UsageError(f"the arguments are given twice: here, and in {_source_name(args.batch)}; leave out one")
    if not args.task and _options(args) != NO_OPTIONS:
        raise UsageError("without a TASK each line has options of its own; give the TASK, or put the options there")


def _batch(setup: CommandContext, args: argparse.Namespace) -> int:
    setup.known_tasks()
    client = setup.client
    with _copy_to_temporary(args.batch) as lines:
        found = Counter(job.task for job in progress_bar(_jobs(client, lines, args), None, "checked"))
        if not args.force:
            _refuse_unknown(setup, found)
        lines.seek(0)
        # Without a TASK each line has options of its own, of which none is about a job that is there.
        stored, new, options = 0, 0, _options(args)
        for chunk in _chunks(progress_bar(_jobs(client, lines, args), found.total(), "jobs")):
            stored += len(chunk)
            new += sum(bool(handle.is_new) for handle in client.insert_jobs(chunk, options))
    if args.json:
        print_json({"stored": new, "already_there": stored - new})
    else:
        print_line(f"{quantity(new)} stored" + (f", {stored - new:,} were there already" if stored > new else ""))
    return 0


def _copy_to_temporary(name: str) -> IO[bytes]:
    """A temporary copy of the file or of standard input."""
    # It is read twice: to check, then to store. From a copy, what is stored is what was checked, even if somebody
    # writes to the file meanwhile.
    copy: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    if name == "-":
        shutil.copyfileobj(sys.stdin.buffer, copy)
    else:
        try:
            with Path(name).open("rb") as source:
                shutil.copyfileobj(source, copy)
        except OSError as error:
            raise TarryError(f"{name} cannot be read: {error.strerror}") from None
    copy.seek(0)
    return copy


def _source_name(batch: str) -> str:
    return "standard input" if batch == "-" else batch


def _jobs(client: Client, lines: IO[bytes], args: argparse.Namespace) -> Iterator[Job]:
    options = _options(args)
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield _parse_line(client, line, args.task, options)
            except (TarryError, ValueError) as error:
                raise TarryError(f"{_source_name(args.batch)}, line {number}: {error}; nothing was stored") from None


def _parse_line(client: Client, line: bytes, task: str | None, options: Options) -> Job:
    if task:
        return client.make_job(task, msgspec.json.encode(decode_json(line, list | dict)), options)
    parsed = decode_json(line, BatchLine)
    given = msgspec.structs.asdict(parsed)
    own = Options(**{name: given[name] for name in given.keys() - {"task", "args"}}).check()
    return client.make_job(parsed.task, msgspec.json.encode(parsed.args), own)


def _chunks(jobs: Iterator[Job]) -> Iterator[list[Job]]:
    chunk: list[Job] = []
    for job in jobs:
        chunk.append(job)
        if len(chunk) == STORED_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
