"""The call of a job as code: for a terminal, and in Python."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from tarry.client.job_records import JobRecord

MOST_CODE = 20_000
"""Characters of a call."""


def curl_call(job: JobRecord, arguments: Any, is_http: bool, place: str, needs_token: bool) -> str:
    """The command that puts the same job again. place: the address of the API, without `/v1`."""
    put = {"task": job.task, "body" if is_http else "args": arguments, **_options(job)}
    lines = [f"curl {shlex.quote(f'{place}/v1/jobs')}"]
    if needs_token:
        lines.append('-H "Authorization: Bearer $TARRY_TOKEN"')
    lines.append("--json " + shlex.quote(json.dumps(put, ensure_ascii=False)))
    return _cut(" \\\n  ".join(lines))


def python_call(job: JobRecord, arguments: Any, is_http: bool) -> str:
    """The same in Python, by the name of the task."""
    options = ", ".join(f"{name}={value!r}" for name, value in _options(job).items())
    using = f".using({options})" if options else ""
    return _cut(f"app.named({job.task!r}){using}.enqueue({_arguments(arguments, is_http)})")


def _options(job: JobRecord) -> Mapping[str, Any]:
    """What was asked of this job, besides its arguments."""
    found: dict[str, Any] = {"queue": job.queue}
    if job.key is not None:
        found["key"] = job.key
    if job.priority:
        found["priority"] = job.priority
    return found


def _arguments(arguments: Any, is_http: bool) -> str:
    if not is_http and isinstance(arguments, list):
        return ", ".join(map(repr, arguments))
    if not is_http and isinstance(arguments, Mapping):
        if all(name.isidentifier() for name in arguments):
            return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        return f"**{dict(arguments)!r}"
    return repr(arguments)


def _cut(text: str) -> str:
    # What is cut is no code any more, and says so.
    return text if len(text) <= MOST_CODE else f"{text[:MOST_CODE]}\n… {len(text) - MOST_CODE:,} characters more"
