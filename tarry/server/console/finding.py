"""Where the search field leads: to a job or flow by its id, or a part of it; to a task; to the jobs with a key, or to
those that a line such as `state:dead task:shop.*` says."""

import re
from urllib.parse import urlencode

from tarry.client.operations.line_words import FIELDS
from tarry.client.operations.search_line import is_part_of_id
from tarry.errors import StoreError
from tarry.model.flow.node_ids import is_root
from tarry.model.values.console_paths import task_path
from tarry.operate.tasks import TaskQuery, list_tasks
from tarry.server.http.method import ApiCall
from tarry.store.rules import ids

# A word that is no label: keys may have colons, too.
_LINE = re.compile(rf"(?:.*\s)?(?:{'|'.join(FIELDS)}|label\.[^\s:]+):")
MOST_TEXT = 200
"""Characters of a name or a key that are looked for. A line is never cut: it would find more than it says."""


def find_page(call: ApiCall, text: str) -> str:
    """The page for what somebody has typed. May block."""
    text = text.strip()
    if _LINE.match(text):
        return _jobs(q=text)
    text = text[:MOST_TEXT]
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
        return task_path(text)
    if text in others:
        return _jobs(task=text)
    has_some = any(text.casefold() in name.casefold() for name in names)
    return f"/tasks?{urlencode({'search': text})}" if has_some and not is_part_of_id(text) else ""


def _jobs(**filters: str) -> str:
    return f"/jobs?{urlencode(filters)}"
