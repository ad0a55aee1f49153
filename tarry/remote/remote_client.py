"""`tarry.Client`: puts jobs through a server's HTTP API, with the verbs of an app.

The methods of the server, each by its name: `client.methods.pause_queue(queue="mail")`.
"""

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from tarry.errors import ArgumentError, StoreError
from tarry.model.checks.decoders import decode_json
from tarry.model.duration import SECOND, Duration
from tarry.model.retry import Retry
from tarry.remote.problems import ServerProblem, error_of, error_of_answer
from tarry.remote.remote_job import RemoteJob
from tarry.tasks.arguments import json_values
from tarry.tasks.arguments.argument_errors import CAUSES
from tarry.tasks.arguments.options import Options, spread
from tarry.tasks.lazy_asyncio import asyncio

if TYPE_CHECKING:
    import ssl
    from concurrent.futures import ThreadPoolExecutor
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from tarry.operate.method import Method


class RemoteMethods:
    """What people and programs may do, as the HTTP API has it: its parameters by name, its answer as the same Struct as
    there. AttributeError for a name that no method has, TypeError for a parameter; the errors that the server answers
    with."""

    def __init__(self, call: Callable[..., bytes]) -> None:
        self._request = call

    def __getattr__(self, name: str) -> Any:
        # Here: who only enqueues needs none of them.
        from tarry.operate.catalog import METHODS  # noqa: PLC0415

        method = next((one for one in METHODS if one.name == name), None)
        if method is None:
            raise AttributeError(f"no method {name}: {', '.join(one.name for one in METHODS)}")
        return partial(self._call, method)

    def _call(self, method: "Method", /, **values: Any) -> Any:
        parts = _divide(method, values)
        path = method.route.format(**{name: quote(str(one), safe="") for name, one in parts["path"].items()})
        if parts["query"]:
            path += "?" + urlencode(parts["query"], doseq=True)
        answer = self._request(method.verb, path, parts["body"] if "body" in method.parts else None)
        return decode_json(answer, method.answer) if answer and method.answer is not None else None


def _divide(method: "Method", values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The values of the path, the query and the body; TypeError."""
    found: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "body": {}}
    for part, kind in method.parts.items():
        names = {field.encode_name for field in msgspec.structs.fields(kind)}
        if part == "path" and not names <= values.keys():
            raise TypeError(f"{method.name} needs {', '.join(names - values.keys())}")
        found[part] = {name: values.pop(name) for name in names & values.keys()}
    if values:
        raise TypeError(f"{method.name} takes no {', '.join(values)}")
    return found


TIMEOUT = 15.0
"""Seconds that one request takes at most, besides what it is asked to wait."""
MOST_WAITING = 64
"""Results of a client that are awaited at once, each with a thread; others take their turn."""
CHUNK = 5000
"""Jobs of one request."""


class PutResult(Struct):
    """What the server says of a put."""

    id: str = ""
    is_new: bool | None = None
    error: ServerProblem | UnsetType = UNSET


class RemoteClient:
    """A client of the server at `url`. Safe from threads and coroutines, and after a fork.

    token: sent with each request. timeout: seconds of a request. tls: for an authority or a certificate of your own.

        client = tarry.Client("http://127.0.0.1:7800", token="...")
        job = client.named("shop.mail.send").using(delay=60).enqueue("ann@example.org")
        job.result(timeout=90)
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = TIMEOUT, tls: "ssl.SSLContext | None" = None
    ) -> None:
        # Python's HTTP client takes longer to load than all of tarry.
        from tarry.remote.kept_connections import ServerConnections  # noqa: PLC0415

        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connections = ServerConnections(url, headers, timeout, tls)
        self._waiting: ThreadPoolExecutor | None = None
        self._pid = os.getpid()

    def named(self, name: str) -> "RemoteTask":
        """The task of that name. Whether there is one the server says when a job is put."""
        return RemoteTask(self, name, Options())

    def enqueue(self, name: str, /, *args: Any, **kwargs: Any) -> RemoteJob:
        """Enqueues a call of the task of that name; see `RemoteTask.enqueue`."""
        return self.named(name).enqueue(*args, **kwargs)

    async def aenqueue(self, name: str, /, *args: Any, **kwargs: Any) -> RemoteJob:
        """The same, awaited."""
        return await self.named(name).aenqueue(*args, **kwargs)

    def get(self, id: str) -> RemoteJob:
        """The handle of a job; ValueError if this is not an id."""
        return RemoteJob(self, str(uuid.UUID(id)))

    @property
    def methods(self) -> RemoteMethods:
        """What people may do, by name as in the HTTP API: `client.methods.set_limit(limit="queue:mail", at_once=5)`."""
        return RemoteMethods(self.call)

    def put(self, body: Any, name: str) -> list[PutResult]:
        """Puts one job, or a list of them. name: of the request: sent again with it, each job is stored once."""
        headers = {"Idempotency-Key": name} if name else {}
        answer = self._request("POST", "/v1/jobs", body, headers)
        if isinstance(body, list):
            return decode_json(answer, list[PutResult])
        return [decode_json(answer, PutResult)]

    def call(self, method: str, path: str, body: Any = None, longer: float = 0.0) -> bytes:
        """The body of the answer to a request; the errors that an app would raise."""
        return self._request(method, path, {} if body is None and method == "POST" else body, {}, longer)

    async def acall(self, method: str, path: str, body: Any = None, longer: float = 0.0) -> bytes:
        """The same, awaited."""
        request = partial(self.call, method, path, body, longer)
        if not longer:
            return await asyncio.to_thread(request)
        # Not a thread of the loop's own executor: those who wait would take all that others need for a moment.
        return await asyncio.get_running_loop().run_in_executor(self._waiting_threads(), request)

    def close(self) -> None:
        """Closes the connections. The next call opens new ones."""
        self._connections.close()
        waiting, self._waiting = self._waiting, None
        if waiting is not None and self._pid == os.getpid():
            waiting.shutdown(wait=False)

    def _waiting_threads(self) -> "ThreadPoolExecutor":
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - as for the connections

        # A forked child has none of its parent's threads.
        if self._waiting is None or self._pid != os.getpid():
            self._waiting, self._pid = ThreadPoolExecutor(MOST_WAITING, "tarry-client"), os.getpid()
        return self._waiting

    def __enter__(self) -> "RemoteClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "RemoteClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _request(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], longer: float = 0.0
    ) -> bytes:  # fmt: skip
        content = None if body is None else msgspec.json.encode(body)
        more = {} if content is None else {"Content-Type": "application/json"}
        answer = self._connections.request(method, path, content, {**more, **headers}, longer)
        if answer.status >= 300:
            raise error_of_answer(answer, self._connections.url)
        return answer.body


class RemoteTask:
    """A task of the server's app, by its name."""

    def __init__(self, client: RemoteClient, name: str, options: Options) -> None:
        self._client, self.name, self._options = client, name, options

    def using(self, **options: Any) -> "RemoteTask":
        """The task with options, as `using` of an app's task: delay, at, key, priority, queue, expires, unique_for,
        on_duplicate, max_delay, running, idempotency, window, durable, timeout, retry, labels, cost, leading.
        ValueError."""
        if "connection" in options:
            raise TypeError("connection= is for a program that has the store itself")
        return RemoteTask(self._client, self.name, msgspec.structs.replace(self._options, **options).check())

    def enqueue(self, /, *args: Any, **kwargs: Any) -> RemoteJob:
        """Enqueues one call; returns once the server has stored it. Arguments by position or by name, not both.

        ArgumentError, UnknownTask, Busy, Draining, QueueFull (TenantFull of a key), StoreError. If the answer is lost,
        StoreUnavailable: `error.send_again()` sends the very same, which is one job.
        """
        return self._enqueue([self._body(args, kwargs)], single=True)[0]

    async def aenqueue(self, /, *args: Any, **kwargs: Any) -> RemoteJob:
        """The same, awaited."""
        return await asyncio.to_thread(self.enqueue, *args, **kwargs)

    def enqueue_many(
        self, calls: Iterable[Sequence[Any] | Mapping[str, Any]], *, over: Duration | None = None
    ) -> list[RemoteJob]:
        """Enqueues many calls, thousands in one request; each is a tuple of arguments, or a mapping by name. over: they
        are due evenly over that time, the first at once, or when `using` says.

        If some are not stored, the error of the first: others may be stored, and `error.send_again()` sends all again,
        each of which is one job.
        """
        each = list(calls)
        bodies = [self._body_of(call, later) for call, later in zip(each, spread(over, len(each)), strict=True)]
        return self._enqueue(bodies, single=False)

    async def aenqueue_many(
        self, calls: Iterable[Sequence[Any] | Mapping[str, Any]], *, over: Duration | None = None
    ) -> list[RemoteJob]:
        """The same, awaited."""
        return await asyncio.to_thread(self.enqueue_many, calls, over=over)

    def _enqueue(self, bodies: list[dict[str, Any]], single: bool) -> list[RemoteJob]:
        # A key says already what is the same job, and a request has no other name beside it.
        named = self._options.key is not None or self._options.idempotency is not None
        return self._put(bodies, single, "" if named else uuid.uuid4().hex)

    def _put(self, bodies: list[dict[str, Any]], single: bool, name: str) -> list[RemoteJob]:
        jobs: list[RemoteJob] = []
        try:
            for start in range(0, len(bodies), CHUNK):
                chunk = bodies[start : start + CHUNK]
                jobs += self._handles(self._client.put(chunk[0] if single else chunk, name and f"{name}/{start}"))
        except StoreError as error:
            error.stored = error.stored if not jobs else None
            again = partial(self._put, bodies, single, name)
            error.again = (lambda: again()[0]) if single else again
            raise
        return jobs

    def _handles(self, results: Sequence[PutResult]) -> list[RemoteJob]:
        for result in results:
            if not isinstance(result.error, UnsetType):
                error = error_of(result.error, 207)
                if isinstance(error, StoreError) and len(results) > 1:
                    # Others of the same request may be stored.
                    error.stored = None
                raise error
        return [RemoteJob(self._client, result.id, result.is_new) for result in results]

    def _body_of(self, call: Sequence[Any] | Mapping[str, Any], later: float | None) -> dict[str, Any]:
        task = self if later is None else RemoteTask(self._client, self.name, self._options.later(later))
        return task._body((), call) if isinstance(call, Mapping) else task._body(call, {})

    def _body(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if args and kwargs:
            raise ArgumentError(f"{self.name}: give the arguments by position or by name, not both")
        try:
            encoded = msgspec.Raw(json_values.encode(kwargs or args))
        except CAUSES as error:
            raise ArgumentError(f"{self.name}: the arguments cannot travel as JSON: {error}") from None
        return {"task": self.name, "args": encoded, **_written(self._options)}


def _written(options: Options) -> dict[str, Any]:
    """The options that are set, as a request has them."""
    given = msgspec.structs.asdict(options)
    usual = msgspec.structs.asdict(Options())
    found = {name: value for name, value in given.items() if value != usual[name]}
    if "retry" in found:
        found["retry"] = _retry(found["retry"])
    return {
        name: value / timedelta(seconds=1) if isinstance(value, timedelta) else value for name, value in found.items()
    }


def _retry(rule: Any) -> Any:
    """A retry rule as a request has it; ValueError for one that has none for single errors."""
    if rule is None:
        return 0
    if not isinstance(rule, Retry):
        return rule
    if rule.per:
        raise ValueError("retry= with per= is for tasks in code: a request cannot carry it")
    delays = None if isinstance(rule.backoff, str) else [delay / SECOND for delay in rule._delays or ()]
    return {
        "limit": rule.limit,
        "backoff": rule.backoff if delays is None else delays,
        "base": rule.base / SECOND,
        "cap": rule.cap / SECOND,
        "jitter": rule.jitter,
        "within": None if rule.within is None else rule.within / SECOND,
        "only": sorted(rule.only),
        "never": sorted(rule.never),
    }
