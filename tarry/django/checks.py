"""What `manage.py check` says of a backend. Each message has an id, for SILENCED_SYSTEM_CHECKS, and a way out.

E001 unknown option; E002 no store, or wrong settings; E003 the store refuses. W001 the store cannot be reached; W002
queues that no pool serves; W003 one SQLite file and several hosts; W004 enqueues could join transactions and do not;
W005 no time zones; W006 no tables yet.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections
from django.db.utils import ConnectionDoesNotExist

from tarry.app import App
from tarry.config.config import Config
from tarry.django import database
from tarry.errors import StoreUnavailable, TarryError
from tarry.store.queries.hosts import list_hosts
from tarry.store.rules.base import Store

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
        yield checks.Error(f"{place}: {error}", hint=f"mend OPTIONS of {place}", id="tarry.E002")
        return
    yield from _check_transactions(options, place)
    yield from _check_time_zones(place)
    if url != database.IN_MEMORY:
        yield from _check_store(app, options, place)
    yield from _check_queues(queues, config, place)


def _check_store(app: Callable[[], App], options: Mapping[str, Any], place: str) -> Iterator[Any]:
    try:
        # To open a store makes its tables: a check must not, least of all in a file that is not there yet.
        if not options.get("store") and not _has_tables(database.database_of(options)):
            yield from _without_tables(database.database_of(options), place)
            return
        store = app().client.store
        # A question that the store's server itself answers.
        store.time()
        yield from _check_hosts(store, place)
    except (StoreUnavailable, DatabaseError) as error:
        yield checks.Warning(
            f"{place}: the store cannot be reached: {error}",
            hint="start its server, or mend its address; until then every enqueue fails",
            id="tarry.W001",
        )
    except (TarryError, ImportError) as error:
        hint = "`manage.py tarry check` says more of it"
        yield checks.Error(f"{place}: {error}", hint=hint, id="tarry.E003")


def _has_tables(alias: str) -> bool:
    connection = connections[alias]
    if connection.vendor == "sqlite" and not Path(connection.settings_dict["NAME"]).exists():
        return False
    with connection.cursor() as cursor:
        if connection.vendor != "postgresql":
            return "tarry_job" in connection.introspection.table_names(cursor)
        cursor.execute("SELECT 1 FROM information_schema.schemata WHERE schema_name = 'tarry'")
        return cursor.fetchone() is not None


def _without_tables(alias: str, place: str) -> Iterator[Any]:
    # Those who are on the way to `migrate` need not be told.
    if sys.argv[1:2] not in (["migrate"], ["makemigrations"]):
        yield checks.Warning(
            f"{place}: DATABASES[{alias!r}] has no tables of tarry yet", hint="run manage.py migrate", id="tarry.W006"
        )


def _check_hosts(store: Store, place: str) -> Iterator[Any]:
    if not store.url.startswith("sqlite:"):
        return
    names = sorted({host.name for host in list_hosts(store) if host.is_alive})
    if len(names) > 1:
        yield checks.Warning(
            f"{place}: masters on {', '.join(names)} use one SQLite file, which only one machine can share safely",
            hint="give them PostgreSQL, MySQL or Redis; containers of one machine are safe: silence this for them",
            id="tarry.W003",
        )


def _check_transactions(options: Mapping[str, Any], place: str) -> Iterator[Any]:
    alias = database.database_of(options)
    given, of_django = options.get("store"), _url_of_django(alias)
    if not isinstance(given, str) or of_django in ("", database.IN_MEMORY):
        return
    is_same = given.partition("?")[0] == of_django.partition("?")[0]
    if is_same or (given.startswith("sqlite:") and of_django.startswith("sqlite:")):
        what = "is the database" if is_same else "is another SQLite file than that"
        yield checks.Warning(
            f"{place}: the store {what} of DATABASES[{alias!r}], and its URL makes enqueues wait for the commit:"
            " a crash between the commit and the enqueue loses the job",
            hint="leave store out of OPTIONS: then a job is part of the transaction",
            id="tarry.W004",
        )


def _url_of_django(alias: str) -> str:
    """Where jobs would be without a store of their own; empty: nowhere."""
    try:
        return str(database.store_url({"database": alias}))
    except ImproperlyConfigured:
        return ""


def _check_time_zones(place: str) -> Iterator[Any]:
    if not settings.USE_TZ:
        yield checks.Warning(
            f"{place}: USE_TZ is False: a run_after in the hour in which clocks go back has two meanings",
            hint="set USE_TZ = True",
            id="tarry.W005",
        )


def _check_queues(queues: set[str], config: Config, place: str) -> Iterator[Any]:
    served = {queue for pool in config.pools.values() for queue in pool.queues}
    if "*" not in served and (unserved := sorted(queues - served)):
        yield checks.Warning(
            f"{place}: no pool of tarry.toml serves the queues {', '.join(unserved)}",
            hint="add them to [pools.NAME] queues",
            id="tarry.W002",
        )
