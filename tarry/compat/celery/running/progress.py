"""`update_state` and `AsyncResult.info` over tarry's progress: a fraction, and a message with state and data."""

import json
from collections.abc import Mapping
from typing import Any

from tarry.compat.celery.differences import differs
from tarry.compat.celery.sending.values import from_json, to_json
from tarry.tasks.progress import Progress
from tarry.tasks.running import current, current_job

MOST = 200
"""Characters of a message that are kept."""


def report_state(state: str, meta: Any) -> None:
    """Reports a state of the app's own, such as PROGRESS, with its data."""
    if current.get() is None:
        return
    message = f"{state} {json.dumps(to_json(meta), ensure_ascii=False)}"
    if len(message) > MOST:
        differs(f"update_state(meta=...): {len(message)} characters; the first {MOST} of state and data are kept")
    current_job().progress(_fraction(meta), message)


def _fraction(meta: Any) -> float:
    if not isinstance(meta, Mapping):
        return 0.0
    done, total = meta.get("current", meta.get("done")), meta.get("total")
    if not (isinstance(done, int | float) and isinstance(total, int | float) and total > 0):
        return 0.0
    return min(1.0, max(0.0, done / total))


def state_of(progress: Progress | None) -> tuple[str, Any] | None:
    """The state and its data as `report_state` was given them; None: the task reported none."""
    if progress is None:
        return None
    state, _, text = progress.message.partition(" ")
    if not state.isupper():
        return None
    try:
        return state, from_json(json.loads(text))
    except ValueError:
        return None
