"""Enqueues that belong to the caller's transaction: `using(connection=...)`.

Where the connection is to the database that is the store, the job is written through it, and the two commit as one.
Where it is to another, but its library tells when it has committed, the job is held in this process until then: if
the process dies in between, or the store fails just then, the job is lost.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tarry.client.handle import Handle
from tarry.client.handles import Handles
from tarry.errors import OtherDatabase
from tarry.model.job import Job
from tarry.store import ids
from tarry.store.base import Store
from tarry.store.shared.theirs import is_a
from tarry.tasks.options import Options

Put = Callable[[Sequence[Job], Options], list[Handle[Any]]]
_log = logging.getLogger("tarry.client")
_KEPT = "tarry.held"
"""Where in `Session.info` the jobs are that wait for its commit."""


class Transactional:
    """Puts jobs within a caller's transaction. put: stores jobs as ever, for those that wait for a commit elsewhere."""

    def __init__(self, store: Store, handles: Handles, put: Put) -> None:
        self._store, self._handles, self._put_later = store, handles, put

    def put(self, jobs: Sequence[Job], options: Options) -> list[Handle[Any]]:
        """Puts the jobs within the transaction of `options.connection`."""
        connection = _plain(options.connection)
        if _asynchronous(connection):
            raise TypeError(f"connection={connection!r} is asynchronous: await aenqueue(...)")
        return self._put(jobs, options, connection)

    async def aput(self, jobs: Sequence[Job], options: Options) -> list[Handle[Any]]:
        """The same, awaited. What is not asynchronous itself is used where it belongs, in this thread."""
        connection = _plain(options.connection)
        if not _asynchronous(connection):
            return self._put(jobs, options, connection)
        handles: list[Handle[Any]] = await connection.run_sync(lambda inner: self._put(jobs, options, inner))
        return handles

    def _put(self, jobs: Sequence[Job], options: Options, connection: Any) -> list[Handle[Any]]:
        if options.on_duplicate != "return":
            raise ValueError(
                f'on_duplicate="{options.on_duplicate}" changes a job that others may see: it cannot wait for the'
                " commit of connection=; leave one of them out"
            )
        try:
            lives = self._store.insert_within(connection, jobs)
        except OtherDatabase as why:
            return self._hold(jobs, options, connection, why)
        return [self._handles.land(job, id, options) for job, id in zip(jobs, lives, strict=True)]

    def _hold(self, jobs: Sequence[Job], options: Options, connection: Any, why: OtherDatabase) -> list[Handle[Any]]:
        """Until the commit."""
        held = _Held(self._put_later, jobs, options, [self._handles.of(job.id, None) for job in jobs])
        if is_a(connection, "sqlalchemy.orm", "Session"):
            _kept(connection).add(connection, held)
        elif hasattr(connection, "on_commit") and type(connection).__module__.startswith("django."):
            connection.on_commit(held.send)
        else:
            raise OtherDatabase(
                f"{why}: the two cannot commit as one. Keep the jobs in your own database"
                " (sqlite:///your.db?shared=yes); or give a Session of SQLAlchemy or a connection of Django, which tell"
                " when they have committed, so that the job can be enqueued right after"
            ) from None
        return held.handles


class _Held(Struct, eq=False):
    """What one call enqueued, until the commit."""

    put: Put
    jobs: Sequence[Job]
    options: Options
    handles: list[Handle[Any]]
    within: Any = None
    """The `SessionTransaction`, as deep as savepoints go, that it stands and falls with."""

    def send(self) -> None:
        """The commit is done, so it is too late to raise: the caller would believe that it had failed."""
        try:
            landed = self.put(self.jobs, replace(self.options, connection=None))
            for handle, new in zip(self.handles, landed, strict=True):
                handle.landed(new)
        except Exception:
            names = ", ".join(f"{job.task} {ids.text(job.id)}" for job in self.jobs)
            _log.exception("the transaction was committed, but what it enqueued could not be stored: %s", names)


class _Kept:
    """The jobs that wait for the commit of one Session, which tells of it by events."""

    def __init__(self, session: Any) -> None:
        self._waiting: list[_Held] = []
        self._committed: Any = None
        """The transaction or savepoint that was just committed, and is about to end."""
        listen: Callable[..., None] = sys.modules["sqlalchemy.event"].listen
        listen(session, "after_commit", self._on_commit)
        listen(session, "after_transaction_end", self._on_end)

    def add(self, session: Any, held: _Held) -> None:
        if not session.in_transaction():
            session.begin()
        held.within = _innermost(session)
        self._waiting.append(held)

    def _on_commit(self, session: Any) -> None:
        self._committed = _innermost(session)

    def _on_end(self, session: Any, transaction: Any) -> None:
        # Also the end of what was rolled back, or just left.
        ended = [held for held in self._waiting if held.within is transaction]
        if not ended:
            return
        committed, self._committed = transaction is self._committed, None
        self._waiting = [held for held in self._waiting if held.within is not transaction]
        for held in ended if committed else ():
            if transaction.parent is None:
                held.send()
            else:
                held.within = transaction.parent
                self._waiting.append(held)


def _innermost(session: Any) -> Any:
    return session.get_nested_transaction() or session.get_transaction()


def _kept(session: Any) -> _Kept:
    kept: _Kept | None = session.info.get(_KEPT)
    if kept is None:
        kept = session.info[_KEPT] = _Kept(session)
    return kept


def _plain(connection: Any) -> Any:
    """The Session of this thread or task, where a registry of them was given."""
    registry = is_a(connection, "sqlalchemy.orm", "scoped_session")
    registry = registry or is_a(connection, "sqlalchemy.ext.asyncio", "async_scoped_session")
    return connection() if registry else connection


def _asynchronous(connection: Any) -> bool:
    where = "sqlalchemy.ext.asyncio"
    return is_a(connection, where, "AsyncConnection") or is_a(connection, where, "AsyncSession")
