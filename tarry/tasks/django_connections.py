"""Closes Django's database connections after each job, if they are broken or older than CONN_MAX_AGE.

Django does the same after each request.
"""
# A worker that kept its connections would fail after a restart of the database.

import logging
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger("tarry.worker")

# tarry does not import it: in a program without Django a job costs only the check whether it is loaded.
DJANGO = "django.db"
"""A module that is loaded if the program uses Django's databases."""


def close_old() -> None:
    """Closes the broken and the old connections of the calling thread, except inside `atomic`."""
    if _is_configured():
        try:
            sys.modules[DJANGO].close_old_connections()
        except Exception:
            # The job has ended already: its outcome must not change because of this.
            log.warning("a connection of Django cannot be closed", exc_info=True)


async def run_attempt(attempt: Coroutine[Any, Any, T]) -> T:
    """Awaits an attempt. Its sync calls run in a thread of its own, as in a request of Django."""
    from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async  # noqa: PLC0415 - comes with Django

    async with ThreadSensitiveContext() as context:
        ended = await attempt
        # Connections belong to threads, so close them in the attempt's own. Without such a thread it made no sync call.
        if context in SyncToAsync.context_to_thread_executor:
            await sync_to_async(close_old)()
        return ended


def _is_configured() -> bool:
    settings = sys.modules.get("django.conf")
    # The module may be loaded before it is configured; to touch the settings then raises.
    return settings is not None and bool(settings.settings.configured)
