"""Enqueues in the caller's transaction: `using(connection=...)`.

If the connection is to the store's own database, the job is written through it, and both commit together. If it is to
another database whose library reports commits, the job waits in this process until the commit: it is lost if the
process dies in between, or if the store fails then.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tarry.client.bounds import BoundedQueues
from tarry.client.handle import Handle, MakeHandle
from tarry.errors import OtherDatabase
from tarry.model.job import Job
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.rules.flows import NewFlow
from tarry.store.sql.caller_connection import is_a
from tarry.tasks.arguments.options import NO_OPTIONS, Options

InsertInTransaction = Callable[[Sequence[Job], Options], list[Handle[Any]]]
InsertFlow = Callable[[NewFlow], Handle[Any]]
_log = logging.getLogger("tarry.client")
_FACTORIES = (
    ("sqlalchemy.engine", "Engine"), ("sqlalchemy.orm", "sessionmaker"),
    ("sqlalchemy.ext.asyncio", "AsyncEngine"), ("sqlalchemy.ext.asyncio", "async_sessionmaker"),
)  # fmt: skip
_INFO_KEY = "tarry.held"
"""The key in `Session.info` of the jobs that wait for its commit."""


class TransactionalInserter:
    """Inserts jobs within a caller's transaction.

    resolve: makes the handle of an inserted job, as `Inserter.resolve`. insert_later: inserts, after the commit, jobs
    that waited for a commit on another database.
    """

    def __init__(
        self,
        store: Store,
        resolve: Callable[[Job, bytes, Options], Handle[Any]],
        make_handle: MakeHandle,
        insert_later: InsertInTransaction,
        queues: BoundedQueues,
    ) -> None:
        self._store, self._resolve, self._make_handle = store, resolve, make_handle
        self._queues = queues
        self._insert_later = insert_later

    def insert(self, jobs: Sequence[Job], options: Options) -> list[Handle[Any]]:
        """Inserts the jobs within the transaction of `options.connection`."""
        connection = resolve_registry(options.connection)
        if is_async(connection):
            raise TypeError(f"connection={connection!r} is asynchronous: await aenqueue(...)")
        return self._insert(jobs, options, connection)

    async def ainsert(self, jobs: Sequence[Job], options: Options) -> list[Handle[Any]]:
        """The same, awaited."""
        connection = resolve_registry(options.connection)
        if not is_async(connection):
            # A connection belongs to the thread that made it, so it is used here and not in another thread.
            return self._insert(jobs, options, connection)
        handles: list[Handle[Any]] = await connection.run_sync(lambda inner: self._insert(jobs, options, inner))
        return handles

    def insert_flow(self, new: NewFlow, now: int, connection: Any, insert_later: InsertFlow) -> Handle[Any]:
        """Stores a flow within the transaction of `connection`; returns the handle of its root. insert_later: stores it
        after a commit on another database."""
        connection = resolve_registry(connection)
        if is_async(connection):
            raise TypeError(f"connection={connection!r} is asynchronous: async with app.flow(...)")
        return self._insert_flow(new, now, insert_later, connection)

    async def ainsert_flow(self, new: NewFlow, now: int, connection: Any, insert_later: InsertFlow) -> Handle[Any]:
        """The same, awaited."""
        connection = resolve_registry(connection)
        if not is_async(connection):
            return self._insert_flow(new, now, insert_later, connection)
        handle: Handle[Any] = await connection.run_sync(lambda inner: self._insert_flow(new, now, insert_later, inner))
        return handle

    def _insert_flow(self, new: NewFlow, now: int, insert_later: InsertFlow, connection: Any) -> Handle[Any]:
        try:
            id = self._store.flows.require_whole(new, self._store.flows.insert_within(connection, new, now))
        except OtherDatabase as why:
            waiting = self._wait_for_commit([new.root], NO_OPTIONS, connection, why, lambda *_: [insert_later(new)])
            return waiting[0]
        return self._make_handle(id, id == new.root.id)

    def _insert(self, jobs: Sequence[Job], options: Options, connection: Any) -> list[Handle[Any]]:
        if options.on_waiting != "return":
            said = 'running="cancel"' if options.running == "cancel" else f'on_duplicate="{options.on_duplicate}"'
            raise ValueError(
                f"{said} changes a job that others may see: it cannot wait for the"
                " commit of connection=; leave one of them out"
            )
        try:
            stored = self._queues.insert_within(connection, jobs)
        except OtherDatabase as why:
            return self._wait_for_commit(jobs, options, connection, why, self._insert_later)
        return [self._resolve(job, id, options) for job, id in zip(jobs, stored, strict=True)]

    def _wait_for_commit(
        self,
        jobs: Sequence[Job],
        options: Options,
        connection: Any,
        why: OtherDatabase,
        insert_later: InsertInTransaction,
    ) -> list[Handle[Any]]:
        waiting = _WaitingJobs(insert_later, jobs, options, [self._make_handle(job.id, None) for job in jobs])
        if is_a(connection, "sqlalchemy.orm", "Session"):
            _session_jobs(connection).add(connection, waiting)
        # The module too: another library's `on_commit` may mean something else.
        elif hasattr(connection, "on_commit") and type(connection).__module__.startswith("django."):
            connection.on_commit(waiting.insert)
        else:
            raise OtherDatabase(
                f"{why}: the two cannot commit as one. Keep the jobs in your own database"
                " (sqlite:///your.db?shared=yes); or give a Session of SQLAlchemy or a connection of Django, which tell"
                " when they have committed, so that the job can be enqueued right after"
            ) from None
        return waiting.handles


class _WaitingJobs(Struct, eq=False):
    """The jobs of one call, until the commit."""

    insert_later: InsertInTransaction
    jobs: Sequence[Job]
    options: Options
    handles: list[Handle[Any]]
    transaction: Any = None
    """The `SessionTransaction`, or savepoint, whose commit they wait for."""

    def insert(self) -> None:
        """Inserts the jobs. Logs errors: to raise now would tell the caller that the commit had failed."""
        try:
            stored = self.insert_later(self.jobs, replace(self.options, connection=None))
            for handle, new in zip(self.handles, stored, strict=True):
                handle.become(new)
        except Exception:
            names = ", ".join(f"{job.task} {ids.text(job.id)}" for job in self.jobs)
            _log.exception("the transaction was committed, but what it enqueued could not be stored: %s", names)


class _SessionJobs:
    """The jobs that wait for the commit of one Session. The Session reports it by events."""

    def __init__(self, session: Any) -> None:
        self._waiting: list[_WaitingJobs] = []
        self._committed: Any = None
        """The transaction or savepoint that was just committed, and is about to end."""
        # Loaded already, since the caller has a Session. An import would make SQLAlchemy a dependency.
        listen: Callable[..., None] = sys.modules["sqlalchemy.event"].listen
        listen(session, "after_commit", self._on_commit)
        listen(session, "after_transaction_end", self._on_end)

    def add(self, session: Any, jobs: _WaitingJobs) -> None:
        if not session.in_transaction():
            # Without a transaction there would be no commit to wait for.
            session.begin()
        jobs.transaction = _innermost_transaction(session)
        self._waiting.append(jobs)

    def _on_commit(self, session: Any) -> None:
        self._committed = _innermost_transaction(session)

    def _on_end(self, session: Any, transaction: Any) -> None:
        """Called at each end of a transaction, also after a rollback."""
        ended = [jobs for jobs in self._waiting if jobs.transaction is transaction]
        if not ended:
            return
        # SQLAlchemy reports an end after a rollback too; only a commit just before it counts.
        was_committed, self._committed = transaction is self._committed, None
        self._waiting = [jobs for jobs in self._waiting if jobs.transaction is not transaction]
        for jobs in ended if was_committed else ():
            if transaction.parent is None:
                jobs.insert()
            else:
                # A savepoint was released: its jobs wait for the transaction around it.
                jobs.transaction = transaction.parent
                self._waiting.append(jobs)


def _innermost_transaction(session: Any) -> Any:
    return session.get_nested_transaction() or session.get_transaction()


def _session_jobs(session: Any) -> _SessionJobs:
    found: _SessionJobs | None = session.info.get(_INFO_KEY)
    if found is None:
        found = session.info[_INFO_KEY] = _SessionJobs(session)
    return found


def resolve_registry(connection: Any) -> Any:
    """The Session of this thread or task, if a registry of Sessions was given; else the connection itself."""
    if any(is_a(connection, *factory) for factory in _FACTORIES):
        raise TypeError(
            f"connection={connection!r} makes connections: give the Connection or Session whose transaction the job is"
            " to join"
        )
    is_registry = is_a(connection, "sqlalchemy.orm", "scoped_session")
    is_registry = is_registry or is_a(connection, "sqlalchemy.ext.asyncio", "async_scoped_session")
    return connection() if is_registry else connection


def is_async(connection: Any) -> bool:
    """Whether it is an asynchronous one of SQLAlchemy."""
    module = "sqlalchemy.ext.asyncio"
    return is_a(connection, module, "AsyncConnection") or is_a(connection, module, "AsyncSession")
