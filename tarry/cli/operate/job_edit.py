"""`tarry jobs edit`: the arguments of a job, by `--args` or in the editor of the user."""

import argparse
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tarry.client.job_records import job_record, version_of
from tarry.errors import JobNotFound, PayloadLost, PayloadUnavailable, UsageError
from tarry.model.job import Job
from tarry.process.loading import CommandContext
from tarry.store.rules import ids
from tarry.terminal import print_line


@contextlib.contextmanager
def edited_arguments(setup: CommandContext, args: argparse.Namespace) -> Iterator[None]:
    """Within the block the arguments that the user has given or typed, and the version of the job, are among the
    options. What was typed is not lost if the block fails: stderr says where it is. JobNotFound, UsageError."""
    job = _the_job(setup, args)
    args.version = args.version or version_of(job)
    if args.args is not None:
        yield
        return
    given = _arguments_of(setup, job)
    # Readable by its owner only, as the arguments may have secrets.
    path = Path(tempfile.mkdtemp(prefix="tarry-edit-")) / "arguments.json"
    is_written = False
    try:
        path.write_bytes(given)
        _run_editor(path)
        text = path.read_bytes()
        is_written = text != given
        if not is_written and not args.retry:
            raise UsageError("the arguments are as they were: the job stays as it is")
        args.args = text.decode("utf-8", "replace")
        yield
    except BaseException:
        if is_written:
            print_line(f"tarry: what you wrote is in {path}", file=sys.stderr)
            raise
        shutil.rmtree(path.parent)
        raise
    shutil.rmtree(path.parent)


def decode_arguments(text: str | None) -> Any:
    """The arguments that a user wrote; UsageError."""
    try:
        return msgspec.UNSET if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f'--args: no JSON ({error}): write [1, "two"], or {{"name": 1}}') from None


def _the_job(setup: CommandContext, args: argparse.Namespace) -> Job:
    if len(args.names) != 1:
        raise UsageError("edit which job? tarry jobs edit ID: one at a time")
    try:
        (job,) = setup.client.fetch([ids.parse(args.names[0])])
    except ValueError as error:
        raise UsageError(str(error)) from None
    if job is None:
        raise JobNotFound(f"no job {args.names[0]}: it never existed, or its time of keeping is over")
    return job


def _arguments_of(setup: CommandContext, job: Job) -> bytes:
    """What the editor shows first, also of arguments that are kept outside of the store."""
    try:
        job = setup.client.load_arguments(job)
    except (PayloadLost, PayloadUnavailable) as error:
        raise UsageError(f"{error}; give it others: --args '[1, 2]'") from None
    return msgspec.json.format(msgspec.json.encode(job_record(job).args), indent=2) + b"\n"


def _run_editor(path: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise UsageError("with which editor? Set EDITOR, or give the arguments: --args '[1, 2]'")
    try:
        status = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise UsageError(f"EDITOR={editor}: {error}") from None
    if status:
        raise UsageError(f"EDITOR={editor} ended with status {status}: the job stays as it is")
