"""The one place that knows which package has Django's tasks: `django.tasks`, or `django_tasks` before Django 6."""

import importlib
import importlib.util
from typing import Any


def _load() -> str:
    # A project on Django 6 may have the backport installed too; then Django's own counts.
    if importlib.util.find_spec("django.tasks") is not None:
        return "django.tasks"
    if importlib.util.find_spec("django_tasks") is not None:
        return "django_tasks"
    raise ImportError("tarry.django needs Django 6, or django-tasks with Django 5.2: pip install django-tasks")


PACKAGE = _load()
"""`django.tasks` or `django_tasks`."""
_tasks: Any = importlib.import_module(PACKAGE)
_base: Any = importlib.import_module(f"{PACKAGE}.base")
_exceptions: Any = importlib.import_module(f"{PACKAGE}.exceptions")
_signals: Any = importlib.import_module(f"{PACKAGE}.signals")

# Registers Django's check of all backends. Django 6.1 loads that module nowhere, so its `check` would say nothing.
importlib.import_module(f"{PACKAGE}.checks")

BaseTaskBackend: Any = importlib.import_module(f"{PACKAGE}.backends.base").BaseTaskBackend
task_backends: Any = _tasks.task_backends
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
"""Its name is InvalidTaskError in the backport."""
InvalidTaskBackend: Any = getattr(_exceptions, "InvalidTaskBackend", None) or _exceptions.InvalidTaskBackendError
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
task_enqueued: Any = _signals.task_enqueued
task_started: Any = _signals.task_started
task_finished: Any = _signals.task_finished


def normalize_json(value: Any) -> Any:
    """The value as JSON has it: lists for tuples, text for bytes; TypeError for what it has not."""
    home = "django.utils.json" if PACKAGE == "django.tasks" else "django_tasks.utils"
    return importlib.import_module(home).normalize_json(value)
