"""The backend of Django's tasks that keeps them as jobs of tarry.

The options of one enqueue: what a task of Django's says of it, as tarry's options.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections

from tarry.client.handle import Handle
from tarry.client.tasks.task import Using
from tarry.django import checks, compat, database, results
from tarry.django.app import DjangoApp, get_app
from tarry.django.django_task import DjangoTask, option, retry_rule_of
from tarry.django.moments import aware
from tarry.errors import AppError, PayloadLost
from tarry.model.limit import parse_limit
from tarry.tasks.arguments.options import Options
from tarry.tasks.lazy_asyncio import asyncio


class TarryBackend(compat.BaseTaskBackend):
    """`"BACKEND": "tarry.django.Backend"`.

    OPTIONS: store, a URL or several; without it the jobs are in Django's database. database: the alias of the database
    whose transactions an enqueue joins; "default" by default. enqueue_on_commit: if the store is elsewhere, an enqueue
    within a transaction waits for its commit; True by default. retries, backoff, timeout, expires: those of tasks that
    say nothing else. imports: modules with tasks outside the installed apps. config: a tarry.toml.
    """

    task_class = DjangoTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def app(self) -> DjangoApp:
        """The App of this backend's alias."""
        return get_app(self.alias, self.options, type(self))

    def validate_task(self, task: Any) -> None:
        """InvalidTask if the task, or one of its options, cannot be."""
        super().validate_task(task)
        check_options(task)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Stores a job; within a transaction of Django's, the job exists if, and only if, it is committed."""
        app, using, arguments = self._prepare(task, args, kwargs, self._connection())
        handle = using.enqueue(*arguments[0], **arguments[1])
        result = self._result(app, task, handle, arguments)
        compat.task_enqueued.send_robust(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The same, awaited."""
        if database.is_awaited_by_sync_code():
            # That code may be within a transaction, which belongs to its thread.
            return await sync_to_async(self.enqueue, thread_sensitive=True)(task=task, args=args, kwargs=kwargs)
        app, using, arguments = self._prepare(task, args, kwargs, None)
        handle = await using.aenqueue(*arguments[0], **arguments[1])
        # Reads the store if another job has the key.
        result = await asyncio.to_thread(self._result, app, task, handle, arguments)
        await compat.task_enqueued.asend_robust(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result with this id, from any process; TaskResultDoesNotExist."""
        app = self.app
        try:
            job = app.get(result_id).record()
        except (ValueError, LookupError) as error:
            raise compat.TaskResultDoesNotExist(f"there is no result {result_id}") from error
        # Its state and its errors are there all the same.
        with contextlib.suppress(PayloadLost):
            job = app.client.load_arguments(job)
        return app.result_of(app.client.load_result(job))

    async def aget_result(self, result_id: str) -> Any:
        """The same, awaited."""
        # Not `sync_to_async`: all calls of a request would wait for one thread.
        return await asyncio.to_thread(self.get_result, result_id)

    def check(self, **kwargs: Any) -> Iterable[Any]:
        """What Django's system check says of this backend."""
        return checks.check_backend(self.alias, self.options, self.queues, lambda: self.app)

    def _connection(self) -> Any:
        """The connection of Django's whose transaction an enqueue joins; None: there is no transaction."""
        alias = database.database_of(self.options)
        if self.options.get("store") and not self.options.get("enqueue_on_commit", True):
            return None
        return connections[alias] if database.in_transaction(alias) else None

    def _prepare(
        self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], connection: Any
    ) -> tuple[DjangoApp, Using[Any, Any], tuple[list[Any], dict[str, Any]]]:
        self.validate_task(task)
        app = self.app
        arguments = compat.normalize_json(list(args)), compat.normalize_json(dict(kwargs))
        definition = app.tasks.get(task.module_path)
        declared = app.declared(task.module_path)
        if definition is None or declared is None:
            raise compat.InvalidTask(app.why_not(task))
        return app, Using(definition, lambda: app.client, options_of(task, declared, connection)), arguments

    def _result(self, app: DjangoApp, task: Any, handle: Handle[Any], arguments: Any) -> Any:
        if handle.is_new is False:
            return self.get_result(handle.id)
        return results.new_result(self.alias, task, handle.id, arguments)


def tarry_app(alias: str = "default") -> DjangoApp:
    """The App behind a backend of TASKS, for all that Django's tasks have no name for: `tarry_app().get(result.id)` is
    a handle with `result(timeout=)`, `cancel()` and `retry()`; `tarry_app().drain()` runs what is due, for tests.
    AppError if the backend is none of tarry's."""
    if alias not in compat.task_backends.settings:
        raise AppError(f"TASKS has no {alias!r}; it has {', '.join(sorted(compat.task_backends.settings))}")
    backend = compat.task_backends[alias]
    if not isinstance(backend, TarryBackend):
        raise AppError(f"TASKS[{alias!r}] is {type(backend).__name__}: give it BACKEND = tarry.django.Backend")
    return backend.app


def options_of(task: Any, declared: Any, connection: Any) -> Options:
    """The options for a job of this task. declared: the task as its module has it, whose settings the worker knows."""
    retry = retry_rule_of(option(task, "retries"), option(task, "backoff"))
    is_own = any(option(task, name) != option(declared, name) for name in ("retries", "backoff"))
    timeout = option(task, "timeout")
    return Options(
        at=aware(task.run_after),
        key=option(task, "key"),
        priority=int(task.priority),
        queue=task.queue_name,
        expires=option(task, "expires"),
        connection=connection,
        timeout=None if timeout == option(declared, "timeout") else timeout,
        retry=retry if is_own else "default",
        # Its worker and its start are facts of Django's result.
        keeps_attempts=True,
    ).check()


def check_options(task: Any) -> None:
    """InvalidTask with the name of a wrong option."""
    try:
        rule = retry_rule_of(option(task, "retries"), option(task, "backoff"))
        Options(
            key=option(task, "key"), expires=option(task, "expires"), timeout=option(task, "timeout"), retry=rule
        ).check()
        parse_limit(option(task, "limit"), None)
    except (TypeError, ValueError) as error:
        raise compat.InvalidTask(f"{task.module_path}: {error}") from error
