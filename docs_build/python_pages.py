"""The reference of what users import: which page has which names. mkdocstrings writes them from their docstrings."""

import importlib
import inspect
from typing import NamedTuple

import tarry


class PythonPage(NamedTuple):
    """A page with the names of a module, in this order; all of a module without `names`."""

    title: str
    about: str
    module: str
    names: tuple[str, ...] = ()

    def write(self) -> str:
        """The Markdown that mkdocstrings fills in."""
        names = self.names or _public(self.module)
        parts = [
            f"# {self.title}",
            f"{self.about[0].upper()}{self.about[1:]}. All of `{self.module}`.",
            *map(self._entry, names),
        ]
        return "\n\n".join(parts) + "\n"

    def _entry(self, name: str) -> str:
        return f"::: {self.module}.{name}"

    def write_plain(self) -> str:
        """The same with what stands in the code, for whoever reads Markdown."""
        module = importlib.import_module(self.module)
        top = f"# {self.title}\n\n{self.about[0].upper()}{self.about[1:]}. All of `{self.module}`."
        names = self.names or _public(self.module)
        return "\n\n".join([top, *(_plain("##", name, getattr(module, name)) for name in names)]) + "\n"


PAGES = {
    "reference/app.md": PythonPage(
        "Apps and tasks", "where tasks are declared and jobs are enqueued", "tarry",
        ("App", "Task", "Call", "Then", "NewJob"),
    ),
    "reference/jobs.md": PythonPage(
        "Jobs", "what became of a job, from outside", "tarry", ("Job", "State", "Event", "Progress", "Output"),
    ),
    "reference/running.md": PythonPage(
        "Within a task", "the job that runs, and what a task may return or raise", "tarry",
        (
            "current_job", "current_jobs", "CurrentJob", "Retry", "Snooze", "Cancel", "Fail", "Interrupted",
            "TimeLimit", "CalledBack",
        ),
    ),
    "reference/schedules.md": PythonPage("Schedules", "when a task runs by the clock", "tarry", ("Cron", "Calendar")),
    "reference/flows.md": PythonPage(
        "Flows and steps", "jobs that wait for each other, and tasks that go on where they stopped", "tarry",
        ("Flow", "Node", "fan_out", "step", "astep", "sleep", "wait_for", "approve", "Approval"),
    ),
    "reference/client.md": PythonPage(
        "Client and ASGI", "the HTTP API from Python, and within your web application", "tarry", ("Client", "asgi"),
    ),
    "reference/errors.md": PythonPage("Errors", "what tarry raises", "tarry.errors"),
    "reference/testing.md": PythonPage(
        "Testing", "the fixture `jobs` of pytest, and what it gives", "tarry.testing",
        ("jobs", "Jobs", "Enqueued", "Sent", "Reply"),
    ),
    "reference/django.md": PythonPage("Django", "the backend for the tasks of Django", "tarry.django"),
    "reference/celery.md": PythonPage(
        "Names of Celery", "what an app that was written for Celery imports instead", "tarry.compat.celery",
        (
            "Celery", "shared_task", "Task", "AsyncResult", "Signature", "signature", "chain", "group", "chord",
            "crontab", "schedule", "CeleryDifference", "CeleryNotSupported", "get_task_logger",
        ),
    ),
}  # fmt: skip
"""By path. tests/docs/test_site.py says which exported name has no page."""


def _plain(level: str, name: str, value: object) -> str:
    """A name with its signature, what its docstring says, and its public methods."""
    try:
        signature = str(inspect.signature(value)) if callable(value) else ""
    except ValueError:
        signature = ""
    own = inspect.getdoc(value) or ""
    parts = [f"{level} {name}", f"```python\n{name}{signature}\n```", own]
    if inspect.isclass(value):
        methods = [(one, found) for one, found in inspect.getmembers(value, inspect.isfunction) if one[0] != "_"]
        parts += [_plain("###", f"{name}.{one}", found) for one, found in methods]
    return "\n\n".join(part for part in parts if part)


def _public(module: str) -> tuple[str, ...]:
    """What the module exports; else its own classes, in its order."""
    found = importlib.import_module(module)
    exported = getattr(found, "__all__", None)
    if exported is None:
        exported = [name for name, one in vars(found).items() if inspect.isclass(one) and one.__module__ == module]
    return tuple(exported)


def without_page() -> set[str]:
    """What `import tarry` has and no page tells."""
    told = {name for page in PAGES.values() if page.module == "tarry" for name in page.names}
    return set(tarry.__all__) - told - set(_public("tarry.errors")) - {"__version__"}
