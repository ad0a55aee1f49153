"""tarry: the fastest way to do it later. A durable job queue on the store you already have."""

from tarry.app import App
from tarry.engine.call import Call
from tarry.engine.follow import Event
from tarry.engine.handle import Handle as Job
from tarry.engine.new_job import NewJob
from tarry.engine.output import Output
from tarry.engine.progress import Progress
from tarry.engine.running import CalledBack, CurrentJob, Interrupted, TimeLimit, current_job, current_jobs
from tarry.engine.task import Task
from tarry.errors import (
    AppError,
    ArgumentError,
    BodyTooLarge,
    ConfigError,
    IdempotencyError,
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
from tarry.model.schedule import Cron
from tarry.model.verdict import Cancel, Fail, Snooze

__version__ = "0.1.0"

__all__ = [
    "App",
    "AppError",
    "ArgumentError",
    "BodyTooLarge",
    "Call",
    "CalledBack",
    "Cancel",
    "ConfigError",
    "Cron",
    "CurrentJob",
    "Event",
    "Fail",
    "IdempotencyError",
    "Interrupted",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "NewJob",
    "Output",
    "Progress",
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
    "current_jobs",
]
