"""Celery's signals: functions of the app that are called when something happens to a task or a worker.

What cannot be sent here is said when a function is connected, with what to write instead.
"""

import logging
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tarry.compat.celery.differences import differs

log = logging.getLogger("tarry.celery")

Receiver = Callable[..., Any]


class _SignalConnection(Struct, frozen=True):
    receiver: Receiver
    sender: Any
    uid: Any


class CelerySignal:
    """Calls what is connected to it. told: what differs here, said when the first function is connected."""

    def __init__(self, name: str = "", told: str = "") -> None:
        self.name, self._told = name, told
        self._connections: list[_SignalConnection] = []

    def connect(
        self, receiver: Receiver | None = None, *, sender: Any = None, dispatch_uid: Any = None, **ignored: Any
    ) -> Any:
        """`@signal.connect`, `@signal.connect(sender=task)` or `signal.connect(function)`. A function is called once,
        however often it is connected; dispatch_uid: what says that it is the same one."""
        if receiver is None:
            return lambda function: self.connect(function, sender=sender, dispatch_uid=dispatch_uid)
        if self._told:
            differs(f"signal {self.name}: {self._told}")
        made = _SignalConnection(receiver, sender, dispatch_uid or receiver)
        if not any(known.uid == made.uid and known.sender is sender for known in self._connections):
            self._connections.append(made)
        return receiver

    def disconnect(self, receiver: Receiver | None = None, sender: Any = None, dispatch_uid: Any = None) -> bool:
        """False: it was not connected."""
        left = [known for known in self._connections if known.uid != (dispatch_uid or receiver)]
        has_changed, self._connections = len(left) < len(self._connections), left
        return has_changed

    @property
    def receivers(self) -> list[Receiver]:
        """The functions that are connected."""
        return [known.receiver for known in self._connections]

    def send(self, sender: Any = None, **named: Any) -> list[tuple[Receiver, Any]]:
        """Calls those that are connected, for this sender or for all. What one raises is logged, and is its answer."""
        wanted = [known for known in self._connections if known.sender is None or _is_same(known.sender, sender)]
        return [(known.receiver, self._call(known.receiver, sender, named)) for known in wanted]

    send_robust = send

    def _call(self, receiver: Receiver, sender: Any, named: dict[str, Any]) -> Any:
        try:
            return receiver(signal=self, sender=sender, **named)
        except Exception as error:
            log.exception("signal %s: %r raised", self.name, receiver)
            return error

    def __repr__(self) -> str:
        return f"<Signal: {self.name}>"


def _is_same(one: Any, other: Any) -> bool:
    # The sender of a task's signals is the task, and before it is sent only its name.
    return one is other or getattr(one, "name", one) == getattr(other, "name", other)


_EACH = "each worker process sends it, since there is no process above them that has the app"
_NEVER = "it is never sent with tarry"

before_task_publish = CelerySignal(
    "before_task_publish", "of a chain, group or chord it is sent for all tasks when that is enqueued; not by schedules"
)
after_task_publish = CelerySignal("after_task_publish")
task_prerun = CelerySignal("task_prerun")
task_postrun = CelerySignal("task_postrun")
task_success = CelerySignal("task_success")
task_retry = CelerySignal("task_retry")
task_failure = CelerySignal("task_failure")
task_revoked = CelerySignal("task_revoked", "it is sent where revoke() is called, and not for jobs that expire")
task_received = CelerySignal("task_received", f"{_NEVER}: task_prerun is")
task_rejected = CelerySignal("task_rejected", f"{_NEVER}: a job that cannot be read is dead, as `tarry jobs` shows")
task_unknown = CelerySignal("task_unknown", f"{_NEVER}: a worker takes no job of a task that its app does not have")
task_internal_error = CelerySignal("task_internal_error", f"{_NEVER}: the worker's log has its errors")
task_sent = CelerySignal("task_sent", f"{_NEVER}: after_task_publish is")

worker_init = CelerySignal("worker_init", _EACH)
worker_process_init = CelerySignal("worker_process_init")
worker_ready = CelerySignal("worker_ready", f"{_EACH}; `tarry status` and /readyz say whether all are up")
worker_process_shutdown = CelerySignal("worker_process_shutdown")
worker_shutting_down = CelerySignal("worker_shutting_down", _EACH)
worker_shutdown = CelerySignal("worker_shutdown", _EACH)
worker_before_create_process = CelerySignal("worker_before_create_process", f"{_NEVER}: worker_process_init is")
celeryd_init = CelerySignal("celeryd_init", f"{_NEVER}: worker_process_init is; settings are those of tarry.toml")
celeryd_after_setup = CelerySignal("celeryd_after_setup", f"{_NEVER}: worker_process_init is")
heartbeat_sent = CelerySignal("heartbeat_sent", f"{_NEVER}: `tarry status` and /healthz say that workers live")
import_modules = CelerySignal("import_modules")

setup_logging = CelerySignal(
    "setup_logging", "what it sets up is for what tasks log; tarry's own log is `log` in tarry.toml"
)
after_setup_logger = CelerySignal("after_setup_logger", f"{_NEVER}: use setup_logging, or `log` in tarry.toml")
after_setup_task_logger = CelerySignal(
    "after_setup_task_logger", f"{_NEVER}: use setup_logging, or `log` in tarry.toml"
)

beat_init = CelerySignal("beat_init", f"{_NEVER}: there is no beat; each host has the schedules")
beat_embedded_init = CelerySignal("beat_embedded_init", f"{_NEVER}: there is no beat; each host has the schedules")
user_preload_options = CelerySignal("user_preload_options", f"{_NEVER}: the command is `tarry`")
eventlet_pool_started = CelerySignal("eventlet_pool_started", f"{_NEVER}: write async tasks with @app.native_task")
eventlet_pool_preshutdown = CelerySignal(
    "eventlet_pool_preshutdown", f"{_NEVER}: write async tasks with @app.native_task"
)
eventlet_pool_postshutdown = CelerySignal(
    "eventlet_pool_postshutdown", f"{_NEVER}: write async tasks with @app.native_task"
)
eventlet_pool_apply = CelerySignal("eventlet_pool_apply", f"{_NEVER}: write async tasks with @app.native_task")
