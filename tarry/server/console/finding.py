"""Where the search field leads: to a job or flow by its id, or a part of it; to a task; to the jobs with a key."""

import re
from urllib.parse import quote, urlencode

from tarry.errors import StoreError
from tarry.model.flow.node_ids import is_root
from tarry.operate.tasks import TaskQuery, list_tasks
from tarry.server.http.method import ApiCall
from tarry.store.rules import ids

# As lists show them. A word of fewer letters may be one of these by chance; digits alone are rather a key.
_PART_OF_ID = re.compile(r"(?=.*[a-f])[0-9a-f]{8,31}")
MOST_TEXT = 200
"""Characters that are looked for."""


def find_page(call: ApiCall, text: str) -> str:
    """The page for what somebody has typed. May block."""
    text = text.strip()[:MOST_TEXT]
    try:
        id = ids.parse(text)
        return f"/{'flows' if is_root(id) else 'jobs'}/{ids.text(id)}"
    except ValueError:
        pass
    if not text:
        return "/jobs"
    if found := _task_page(call, text):
        return found
    return _jobs(id=text) if is_part_of_id(text) else _jobs(key=text)


def is_part_of_id(text: str) -> bool:
    """Whether this is rather the begin or the end of an id than a key."""
    return _PART_OF_ID.fullmatch(text.replace("-", "").lower()) is not None


def _task_page(call: ApiCall, text: str) -> str:
    """The page of the task of that name, or of those whose names have this text; empty: there is none that the caller
    may see."""
    try:
        names = [task.task for task in list_tasks.handler(call, TaskQuery()).tasks]
        others = {tally.task for tally in call.look().counts if call.allows(tally.queue)}
    except StoreError:
        # The page of the jobs tells what is wrong.
        return ""
    if text in names:
        return f"/tasks/{quote(text, safe='')}"
    if text in others:
        return _jobs(task=text)
    has_some = any(text.casefold() in name.casefold() for name in names)
    return f"/tasks?{urlencode({'search': text})}" if has_some and not is_part_of_id(text) else ""


def _jobs(**filters: str) -> str:
    return f"/jobs?{urlencode(filters)}"
