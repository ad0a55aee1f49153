"""What `manage.py check` says of a backend."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db.utils import ConnectionDoesNotExist

from tarry.app import App
from tarry.config import Config
from tarry.django import database
from tarry.errors import StoreUnavailable, TarryError

KNOWN = frozenset(
    ("store", "database", "enqueue_on_commit", "retries", "backoff", "timeout", "expires", "imports", "config")
)
"""The names of OPTIONS."""


def check_backend(alias: str, options: Mapping[str, Any], queues: set[str], app: Callable[[], App]) -> Iterator[Any]:
    """Errors and warnings of one backend. app: makes its App."""
    place = f"TASKS[{alias!r}]"
    if unknown := sorted(set(options) - KNOWN):
        known = ", ".join(sorted(KNOWN))
        yield checks.Error(f"{place}: OPTIONS has no {', '.join(unknown)}", hint=f"there are {known}", id="tarry.E001")
    try:
        url = database.store_url(options)
        config = app().config
    except (ImproperlyConfigured, ConnectionDoesNotExist, TarryError, ValueError, TypeError) as error:
        yield checks.Error(f"{place}: {error}", id="tarry.E002")
        return
    if url != database.IN_MEMORY:
        yield from _check_store(app(), place)
    yield from _check_queues(queues, config, place)


def _check_store(app: App, place: str) -> Iterator[Any]:
    try:
        # A question that the store's server itself answers.
        app.client.store.time()
    except StoreUnavailable as error:
        yield checks.Warning(f"{place}: the store cannot be reached: {error}", id="tarry.W001")
    except (TarryError, ImportError) as error:
        yield checks.Error(f"{place}: {error}", id="tarry.E003")


def _check_queues(queues: set[str], config: Config, place: str) -> Iterator[Any]:
    served = {queue for pool in config.pools.values() for queue in pool.queues}
    if "*" not in served and (unserved := sorted(queues - served)):
        yield checks.Warning(
            f"{place}: no pool of tarry.toml serves the queues {', '.join(unserved)}",
            hint="add them to [pools.NAME] queues",
            id="tarry.W002",
        )
