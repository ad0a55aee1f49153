"""The names of Celery on top of tarry: an app runs when its imports are changed to this module.

What is done differently warns once with a CeleryDifference; what would be lost raises CeleryNotSupported.
docs/from/celery.md has the table of all concepts. Celery itself is not needed.
"""

import logging
import sys
from types import ModuleType
from typing import Any

from tarry.compat.celery import apps, exceptions, result, schedules, signals, states
from tarry.compat.celery.app import Celery, shared_task
from tarry.compat.celery.calling import KombuExchange, KombuQueue
from tarry.compat.celery.canvas import Signature, chain, chord, group, signature
from tarry.compat.celery.differences import CeleryDifference, CeleryNotSupported
from tarry.compat.celery.result import AsyncResult
from tarry.compat.celery.task import CeleryTask

Task = CeleryTask
subtask = signature
crontab = schedules.crontab
schedule = schedules.schedule


def get_task_logger(name: str) -> logging.Logger:
    """The logger of that name, as of `celery.utils.log`; what it logs while a job runs is kept with the job."""
    return logging.getLogger(name)


class _CurrentApp:
    """The app that was made last, looked up at each use."""

    def __getattr__(self, name: str) -> Any:
        return getattr(apps.current_app(), name)


class _CurrentTask:
    """The task that runs this code, looked up at each use. False: none runs."""

    def __getattr__(self, name: str) -> Any:
        task = apps.current_task()
        if task is None:
            raise AttributeError(f"current_task.{name}: no task runs here")
        return getattr(task, name)

    def __bool__(self) -> bool:
        return apps.current_task() is not None


def _add_module(path: str, **names: Any) -> None:
    """Makes `from tarry.compat.celery.PATH import NAME` work, for modules that have one name which apps use."""
    module = ModuleType(f"{__name__}.{path}", "A name of Celery's, where Celery has it.")
    vars(module).update(names)
    sys.modules[module.__name__] = module


_add_module("utils")
_add_module("utils.log", get_task_logger=get_task_logger, get_logger=get_task_logger)
_add_module("app.task", Task=CeleryTask)
_add_module("kombu", Queue=KombuQueue, Exchange=KombuExchange)
_add_module("contrib")
_add_module("contrib.django")
_add_module("contrib.django.task", DjangoTask=CeleryTask)

current_app: Any = _CurrentApp()
current_task: Any = _CurrentTask()

__all__ = [
    "AsyncResult", "Celery", "CeleryDifference", "CeleryNotSupported", "Signature", "Task", "chain", "chord", "crontab",
    "current_app", "current_task", "exceptions", "get_task_logger", "group", "result", "schedule", "schedules",
    "shared_task", "signals", "signature", "states", "subtask",
]  # fmt: skip
