"""Where the console shows a thing: the paths of its pages, for links from alerts and from one page to another."""

from urllib.parse import quote, urlencode

ERRORS, HOSTS, LIMITS, SCHEDULES, STORES = "/errors", "/hosts", "/limits", "/schedules", "/stores"

_MARK = "~"
"""Before a name that a browser would take for something else."""


def queue_path(queue: str) -> str:
    """The page of a queue."""
    return f"/queues/{path_part(queue)}"


def endpoint_path(task: str) -> str:
    """The page of an HTTP task's endpoint."""
    return f"/endpoints/{path_part(task)}"


def task_path(task: str) -> str:
    """The page of a task."""
    return f"/tasks/{path_part(task)}"


def error_path(id: str) -> str:
    """The page of a group of errors."""
    return f"{ERRORS}/{path_part(id)}"


def limit_keys_path(limit: str) -> str:
    """The keys of a limit for each key of a task."""
    return f"{LIMITS}/{path_part(limit)}/keys"


def schedule_path(name: str) -> str:
    """The page of a schedule."""
    return f"{SCHEDULES}/{path_part(name)}"


def jobs_path(**filters: str) -> str:
    """The list of jobs with these filters."""
    return "/jobs?" + urlencode(filters)


def path_part(name: str) -> str:
    """A name as it stands in the path of a page; `name_of` reads it."""
    # A browser goes up a level at "..", and at "%2e%2e", too.
    text = _MARK + name if name in (".", "..") or name.startswith(_MARK) else name
    # Nor is one slash made of two.
    is_changed = any(part in ("", ".", "..") for part in text.split("/"))
    return quote(text, safe="" if is_changed else "/")


def name_of(part: str) -> str:
    """The name that stands so in the path of a page, decoded as a path is."""
    return part.removeprefix(_MARK)
