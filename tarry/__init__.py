"""tarry: the fastest way to do it later. A durable job queue on the store you already have."""

from tarry.app import App
from tarry.engine.handle import Handle as Job
from tarry.engine.running import CalledBack, CurrentJob, Interrupted, TimeLimit, current_job
from tarry.engine.task import Task
from tarry.errors import (
    AppError,
    ArgumentError,
    BodyTooLarge,
    ConfigError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultTimeout,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TarryError,
    UnknownTask,
)
from tarry.model.job import State
from tarry.model.retry import Retry
from tarry.model.verdict import Cancel, Fail, Snooze

__version__ = "0.1.0"

__all__ = [
    "App",
    "AppError",
    "ArgumentError",
    "BodyTooLarge",
    "CalledBack",
    "Cancel",
    "ConfigError",
    "CurrentJob",
    "Fail",
    "Interrupted",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "ResultTimeout",
    "Retry",
    "Snooze",
    "State",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "TarryError",
    "Task",
    "TimeLimit",
    "UnknownTask",
    "__version__",
    "current_job",
]
