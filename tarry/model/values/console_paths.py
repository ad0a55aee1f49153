"""Where the console shows a thing: the paths of its pages, for links from alerts and from one page to another."""

from urllib.parse import quote, urlencode

ERRORS, HOSTS, LIMITS, SCHEDULES, STORES = "/errors", "/hosts", "/limits", "/schedules", "/stores"


def queue_path(queue: str) -> str:
    """The page of a queue."""
    return f"/queues/{_part(queue)}"


def endpoint_path(task: str) -> str:
    """The page of an HTTP task's endpoint."""
    return f"/endpoints/{_part(task)}"


def error_path(id: str) -> str:
    """The page of a group of errors."""
    return f"{ERRORS}/{_part(id)}"


def limit_keys_path(limit: str) -> str:
    """The keys of a limit for each key of a task."""
    return f"{LIMITS}/{_part(limit)}/keys"


def schedule_path(name: str) -> str:
    """The page of a schedule."""
    return f"{SCHEDULES}/{_part(name)}"


def jobs_path(**filters: str) -> str:
    """The list of jobs with these filters."""
    return "/jobs?" + urlencode(filters)


def _part(text: str) -> str:
    return quote(text, safe="")
