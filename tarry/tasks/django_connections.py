"""Django's database connections where jobs run: closed around each job as Django itself does around each request, once
they are broken or older than CONN_MAX_AGE. A worker that kept one for ever would fail after a restart of the database.
"""

import logging
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger("tarry.worker")

DJANGO = "django.db"
"""In `sys.modules` once a program uses Django's databases: the one look that a job costs where nobody does."""


def close_old() -> None:
    """Closes those of the calling thread that are broken or too old; never those in the middle of `atomic`."""
    if _configured():
        try:
            sys.modules[DJANGO].close_old_connections()
        except Exception:
            log.warning("a connection of Django cannot be closed", exc_info=True)


async def run(attempt: Coroutine[Any, Any, T]) -> T:
    """Awaits an attempt whose calls of Django run in a thread of its own, if it makes any, as those of a request do;
    its connections are closed there."""
    from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async  # noqa: PLC0415 - comes with Django

    async with ThreadSensitiveContext() as context:
        ended = await attempt
        if context in SyncToAsync.context_to_thread_executor:
            await sync_to_async(close_old)()
        return ended


def _configured() -> bool:
    settings = sys.modules.get("django.conf")
    return settings is not None and bool(settings.settings.configured)
