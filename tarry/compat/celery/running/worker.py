"""A worker process, as signals tell of it: its start and its end."""

import logging
import os
import socket
from typing import Any

from tarry.compat.celery import signals

_began: set[int] = set()
"""The process that was told to have begun; a fork of it has not."""


def began(app: Any) -> None:
    """A worker of this process begins: sends `worker_process_init` and what belongs to it, once."""
    if os.getpid() in _began:
        return
    _began.clear()
    _began.add(os.getpid())
    if signals.setup_logging.receivers:
        signals.setup_logging.send(app, loglevel=logging.INFO, logfile=None, format="", colorize=False)
        _enable_own_loggers()
    signals.worker_init.send(app)
    signals.worker_process_init.send(app)
    signals.worker_ready.send(app)


def ended(app: Any) -> None:
    """The app is closed: if a worker began here, it has ended."""
    if os.getpid() not in _began:
        return
    _began.clear()
    signals.worker_shutting_down.send(socket.gethostname(), sig="", how="warm", exitcode=0)
    signals.worker_process_shutdown.send(app, pid=os.getpid(), exitcode=0)
    signals.worker_shutdown.send(app)


def _enable_own_loggers() -> None:
    """`dictConfig` turns off all loggers that it does not name, unless it is told not to."""
    for name in list(logging.root.manager.loggerDict):
        if name == "tarry" or name.startswith("tarry."):
            logging.getLogger(name).disabled = False
