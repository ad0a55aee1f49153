"""tarry: the fastest way to do it later. A durable job queue on the store you already have."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tarry.app import App
    from tarry.client.flows.flow_handle import FlowHandle as Flow
    from tarry.client.flows.node import Node
    from tarry.client.follow import Event
    from tarry.client.handle import Handle as Job
    from tarry.client.tasks.fan_out import fan_out
    from tarry.client.tasks.task import Task
    from tarry.config.server_settings import ConsoleMode
    from tarry.errors import (
        AppError,
        ArgumentError,
        BodyTooLarge,
        ConfigError,
        FlowFailed,
        HostNotFound,
        IdempotencyError,
        JobCancelled,
        JobFailed,
        JobNotFound,
        LimitTimeout,
        PartlyUnavailable,
        QueueFull,
        ResultTimeout,
        ScheduleNotFound,
        StepError,
        StepLimit,
        StepsChanged,
        StoreAway,
        StoreBusy,
        StoreError,
        StoreFull,
        StoreReadOnly,
        StoreUnavailable,
        TarryDeprecated,
        TarryError,
        TenantFull,
        TooManySchedules,
        UnknownLimit,
        UnknownTask,
    )
    from tarry.model.job import State
    from tarry.model.retry import Retry
    from tarry.model.schedules.calendar import Calendar
    from tarry.model.schedules.schedule import Cron
    from tarry.model.verdict import Cancel, Fail, Snooze
    from tarry.remote.remote_client import RemoteClient as Client
    from tarry.server.serving.application import HttpDoor
    from tarry.tasks.call import Call, Then
    from tarry.tasks.durable.durable_waits import Approval, approve, sleep, wait_for
    from tarry.tasks.durable.step import astep, step
    from tarry.tasks.interrupts import CalledBack, Interrupted, TimeLimit
    from tarry.tasks.new_job import NewJob
    from tarry.tasks.output import Output
    from tarry.tasks.progress import Progress
    from tarry.tasks.running import CurrentJob, current_job, current_jobs

    __version__: str

__all__ = [
    "App",
    "AppError",
    "Approval",
    "ArgumentError",
    "BodyTooLarge",
    "Calendar",
    "Call",
    "CalledBack",
    "Cancel",
    "Client",
    "ConfigError",
    "Cron",
    "CurrentJob",
    "Event",
    "Fail",
    "Flow",
    "FlowFailed",
    "HostNotFound",
    "IdempotencyError",
    "Interrupted",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "LimitTimeout",
    "NewJob",
    "Node",
    "Output",
    "PartlyUnavailable",
    "Progress",
    "QueueFull",
    "ResultTimeout",
    "Retry",
    "ScheduleNotFound",
    "Snooze",
    "State",
    "StepError",
    "StepLimit",
    "StepsChanged",
    "StoreAway",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "TarryDeprecated",
    "TarryError",
    "Task",
    "TenantFull",
    "Then",
    "TimeLimit",
    "TooManySchedules",
    "UnknownLimit",
    "UnknownTask",
    "__version__",
    "approve",
    "asgi",
    "astep",
    "current_job",
    "current_jobs",
    "fan_out",
    "sleep",
    "step",
    "wait_for",
]


def asgi(
    app: "App",
    *,
    tokens: "str | Path | None" = None,
    passwords: "str | Path | None" = None,
    console: "ConsoleMode" = "on",
    host_names: "Sequence[str]" = (),
) -> "HttpDoor":
    """The app's HTTP API and console as an ASGI application, to serve it or to mount it into another one; needs the
    extra `server`.

        web.mount("/jobs", tarry.asgi(jobs, tokens="tokens.toml"))

    tokens, passwords: the files that `tarry tokens` and `tarry passwords` write; without either, whoever reaches it
    may do everything. console: `on`, `read-only` or `off`. host_names: the names of your site (`*.example.com` for all
    below one, `*` for any): without tokens and passwords only requests for these, for addresses and for localhost are
    answered, so that no page of others has its own name lead here. It opens the store at the first request. Where it is
    served, its lifespan ends its threads; where it is mounted, `close()` does.
    """
    # Here, and imported only when it is called: `from tarry import *` must not need the extra.
    from tarry.server.identity.passwords import open_access  # noqa: PLC0415
    from tarry.server.service import DoorService, DoorSettings  # noqa: PLC0415
    from tarry.server.serving.application import create_application  # noqa: PLC0415

    access = open_access(tokens, passwords)
    settings = DoorSettings(console=console, needs_local_host=not access.needs_token, host_names=tuple(host_names))
    return create_application(DoorService(app, settings=settings, access=access))


_HOMES = {
    "tarry.app": ("App",),
    "tarry.tasks.call": ("Call", "Then"),
    "tarry.client.tasks.fan_out": ("fan_out",),
    "tarry.client.flows.flow_handle": ("FlowHandle",),
    "tarry.client.flows.node": ("Node",),
    "tarry.remote.remote_client": ("RemoteClient",),
    "tarry.client.follow": ("Event",),
    "tarry.client.handle": ("Handle",),
    "tarry.tasks.new_job": ("NewJob",),
    "tarry.tasks.output": ("Output",),
    "tarry.tasks.progress": ("Progress",),
    "tarry.tasks.durable.step": ("astep", "step"),
    "tarry.tasks.durable.durable_waits": ("Approval", "approve", "sleep", "wait_for"),
    "tarry.tasks.interrupts": ("CalledBack", "Interrupted", "TimeLimit"),
    "tarry.tasks.running": ("CurrentJob", "current_job", "current_jobs"),
    "tarry.client.tasks.task": ("Task",),
    "tarry.model.schedules.calendar": ("Calendar",),
    "tarry.model.job": ("State",),
    "tarry.model.retry": ("Retry",),
    "tarry.model.schedules.schedule": ("Cron",),
    "tarry.model.verdict": ("Cancel", "Fail", "Snooze"),
}
"""The names of each module. All other names come from `tarry.errors`."""

# Inside the program a Job is the record in the store, a Flow is built, and a Client has the store itself.
_NAMED_OTHERWISE = {"Job": "Handle", "Flow": "FlowHandle", "Client": "RemoteClient"}

# With `__getattr__` in sight a type checker would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Loads a name at its first use."""
        # Not at import: a command that runs no app must not wait until all of this is loaded.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = _read_version() if name == "__version__" else _load(name)
        # From now on the name is found without this function.
        globals()[name] = value
        return value

    def _load(name: str) -> Any:
        attribute = _NAMED_OTHERWISE.get(name, name)
        home = next((home for home, names in _HOMES.items() if attribute in names), "tarry.errors")
        return getattr(importlib.import_module(home), attribute)

    def _read_version() -> str:
        """The version of the installed package; `0+unknown` where tarry runs without being installed."""
        # By the name of its directory. importlib.metadata would load `email` into each process of a master.
        from pathlib import Path  # noqa: PLC0415

        names = (found.name for place in sys.path for found in Path(place).glob("tarry-*.dist-info"))
        return next(names, "0+unknown").removeprefix("tarry-").removesuffix(".dist-info")

    def __dir__() -> list[str]:
        """All names, also those that are not loaded yet."""
        return sorted({*globals(), *__all__})
