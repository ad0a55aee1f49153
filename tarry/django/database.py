"""Where the jobs of a backend are: the URL of a store, from OPTIONS or from one of Django's DATABASES."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from asgiref.sync import AsyncToSync
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from tarry.tasks.lazy_asyncio import asyncio

_SCHEMES = {"postgresql": "postgresql", "mysql": "mysql"}
IN_MEMORY = "memory://"


def database_of(options: Mapping[str, Any]) -> str:
    """The alias of the database whose transactions an enqueue joins, or whose commit it waits for."""
    return str(options.get("database", "default"))


def store_url(options: Mapping[str, Any]) -> str | list[str]:
    """The URL, or URLs, of the store. ImproperlyConfigured if Django's database cannot keep jobs."""
    given = options.get("store")
    if given:
        return given if isinstance(given, str) else [str(url) for url in given]
    alias = database_of(options)
    connection = connections[alias]
    if connection.vendor == "sqlite":
        return _sqlite_url(str(connection.settings_dict["NAME"]))
    if connection.vendor in _SCHEMES:
        return _server_url(_SCHEMES[connection.vendor], connection.settings_dict)
    raise ImproperlyConfigured(
        f"TASKS: jobs cannot be kept in DATABASES[{alias!r}], which is {connection.vendor}: give OPTIONS a store, such"
        ' as {"store": "redis://127.0.0.1:6379/0"}'
    )


def _sqlite_url(name: str) -> str:
    # Django's tests keep theirs in memory by default, where no other connection sees it.
    if ":memory:" in name or "mode=memory" in name:
        return IN_MEMORY
    return f"sqlite:///{name}?shared=yes"


def _server_url(scheme: str, settings: Mapping[str, Any]) -> str:
    host, port = str(settings["HOST"] or ""), str(settings["PORT"] or "")
    if scheme == "mysql" and not host:
        host = "127.0.0.1"
    user = quote(str(settings["USER"] or ""), safe="")
    if settings["PASSWORD"]:
        user += ":" + quote(str(settings["PASSWORD"]), safe="")
    # A host that is a directory is that of a socket.
    place = quote(host, safe="[]:") if host.startswith("/") else host
    where = f"{user}@{place}" if user else place
    return f"{scheme}://{where}{':' + port if port else ''}/{quote(str(settings['NAME']), safe='')}"


def in_transaction(alias: str) -> bool:
    """Whether this thread is within `atomic()`, or has autocommit off, on that database."""
    connection = connections[alias]
    if connection.in_atomic_block:
        return True
    # Not `get_autocommit()`, which opens the connection: before it is open, the settings say what it will be.
    is_open = connection.connection is not None
    return not (connection.autocommit if is_open else connection.settings_dict["AUTOCOMMIT"])


def is_awaited_by_sync_code() -> bool:
    """Whether this coroutine runs under `async_to_sync`: then the thread that waits for it may have a transaction."""
    # Its own thread cannot see that: connections of Django are a thread's. asgiref has no other way to ask.
    if getattr(AsyncToSync.executors, "current", None) is not None:
        return True
    return asyncio.get_running_loop() in AsyncToSync.loop_thread_executors
