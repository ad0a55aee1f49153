"""The arguments of a job as pages show them: by their names where these are known, without secrets."""

import json
from typing import Any

from tarry.server.http.method import ApiCall
from tarry.tasks.arguments.masking import name_arguments, without_secrets

MOST_VALUE = 400
"""Characters of a value on one line."""


def named_arguments(call: ApiCall, task: str, args: Any) -> Any:
    """The arguments by name, if this process knows the task and its signature."""
    known = call.service.app.tasks.get(task)
    # Those of an HTTP task are what it sends.
    return args if known is None or known.runner is not None else name_arguments(known, args)


def masked_arguments(call: ApiCall, task: str, args: Any) -> Any:
    """The same without secrets."""
    return without_secrets(named_arguments(call, task, args))


def on_a_line(value: Any) -> str:
    """A value as JSON, without secrets, cut."""
    text = json.dumps(without_secrets(value), ensure_ascii=False)
    return text if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]}…"


def on_lines(value: Any) -> str:
    """A value as JSON, to be edited."""
    return json.dumps(value, ensure_ascii=False, indent=2)
