"""A call of a method, whoever makes it; and its entry in the log of acts."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tarry.client.acting import Actor, acting
from tarry.client.audit.log import DONE, Act, cut
from tarry.model.job import LEADING
from tarry.operate.access import Caller, Scope
from tarry.operate.method import Method
from tarry.store.rules import ids
from tarry.tasks.arguments.options import IDEMPOTENCY

# A command that only looks at a file of this host loads none of them.
if TYPE_CHECKING:
    from tarry.app import App
    from tarry.client.client import Client
    from tarry.client.operations.operation import Operation
    from tarry.keeper.host_requests import HostRequest
    from tarry.metrics.store_health import StoreHealth
    from tarry.metrics.store_overview import StoreOverview
    from tarry.model.job import Job
    from tarry.model.values.connection_records import ConnectionFilter, ConnectionList, ConnectionRecord
    from tarry.store.queries.hosts import Host

_KINDS = (IDEMPOTENCY, LEADING)
"""What stands before some keys of callers."""
_OF_A_JOB = ("/v1/jobs/{id}", "/v1/flows/{id}")


class MethodCall:
    """What the handler of a method works with. A request of HTTP is one, and so is a command.

    subject: what it is about, for the log of acts; no secrets.
    """

    __slots__ = ("caller", "queue", "scope", "status", "subject")
    may_take_long = False
    """Whether its caller waits for a long search: for jobs until it has found enough, for more nodes of a flow."""

    def __init__(self, caller: Caller, scope: Scope | None, subject: str) -> None:
        self.caller, self.scope, self.subject = caller, scope, subject
        self.status: int | None = None
        """Of the answer, where it is not that of the method."""
        self.queue = ""
        """The queue that it concerns, for the log of acts: the first one that the method checked."""

    @property
    def app(self) -> "App":
        """What it is about."""
        raise NotImplementedError

    @property
    def client(self) -> "Client":
        """The app's client. The first use opens the store, so it may block and raise StoreError."""
        return self.app.client

    def check(self, queue: str) -> None:
        """NotAllowed if the caller may not do what this method does with that queue."""
        self.queue = self.queue or queue
        # A method that checks a queue has a scope.
        self.caller.check(self.scope or Scope.ADMIN, queue)

    def allows(self, queue: str) -> bool:
        """Whether the caller may do what this method does with that queue."""
        return self.caller.allows(self.scope or Scope.ADMIN, queue)

    @property
    def queues(self) -> tuple[str, ...]:
        """Names and patterns of the queues whose jobs the caller may see; empty: all."""
        return self.caller.queues

    def own_key(self, shown: str) -> str:
        """The key of a job in the store, where the caller wrote, or was shown, this one."""
        kind = next((kind for kind in _KINDS if shown.startswith(kind)), "")
        return kind + self.caller.namespace + shown.removeprefix(kind)

    def shown(self, job: "Job") -> "Job":
        """The job with the key as the caller wrote it, if it is one of its own."""
        own, key = self.caller.namespace, job.key or ""
        for kind in ("", *_KINDS):
            if own and key.startswith(kind + own):
                return replace(job, key=kind + key.removeprefix(kind + own))
        return job

    def sync_tasks(self) -> None:
        """Makes the app's table of tasks what the settings and the store have now; StoreError."""
        self.app.sync_tasks()

    def find_tasks(self, jobs: "Iterable[Job]") -> None:
        """Makes the app's table of tasks have those of these jobs, as far as they are registered; StoreError."""

    def look(self, kept_for: float | None = None) -> "StoreOverview":
        """A look at the store that is at most so many seconds old (None: some), or older if it is a large one;
        StoreError."""
        from tarry.metrics.store_overview import StoreOverview  # noqa: PLC0415 - as the types above

        return StoreOverview.of(self.client.store)

    def health(self) -> "Sequence[StoreHealth]":
        """How each of the stores is. An error of a store is its trouble, and not raised."""
        from tarry.metrics.store_health import read_health  # noqa: PLC0415 - as the types above

        return read_health(self.client.store)

    def find_connections(self, wanted: "ConnectionFilter") -> "ConnectionList":
        """The open connections of the server processes of this host; only a server knows them. Blocks."""
        raise NotImplementedError

    async def end_connection(self, id: str) -> "ConnectionRecord":
        """Ends one of them, and returns what it was; ConnectionNotFound, Busy."""
        raise NotImplementedError

    def flush_acts(self) -> None:
        """Waits until the log of acts has what was recorded here, for a short time at most."""

    def ask(self, host: "Host", request: "HostRequest", job: "Job | None" = None) -> "HostRequest":
        """Has a master told what to do, and returns how far that is; TooManyRequests, StoreError. job: the one that it
        is about."""
        from tarry.keeper.host_requests import HostRequests  # noqa: PLC0415 - as the types above

        HostRequests(self.client.store, host.instance).put(request)
        return request

    def submit(self, operation: "Operation") -> "Operation":
        """Begins a change of many jobs in the background; TooManyOperations, UsageError, StoreError."""
        return self.app.operation_runner().submit(operation)

    def way_to(self, method: Method) -> str:
        """How the caller calls that method."""
        return f"{method.verb} {method.route}"

    def option(self, field: str) -> str:
        """How the caller writes that field."""
        return field


@contextlib.contextmanager
def audited(
    method: Method, call: MethodCall, path: Mapping[str, str], actor: Actor, record: Callable[[Act], None]
) -> Iterator[None]:
    """Within the block this actor acts, and `record` gets what became of it, if the method is one for operators that
    may change something. The act's time is for `record` to say."""
    if not method.is_audited:
        yield
        return

    def write(outcome: str) -> None:
        jobs = _jobs_of(path.get("id", "")) if method.route.startswith(_OF_A_JOB) else ()
        act = Act(0, actor.name, method.name, cut(outcome), actor.address, actor.via, cut(call.subject))
        record(replace(act, queue=call.queue, jobs=jobs))

    try:
        with acting(actor):
            yield
    # Whatever ends it, also a caller that has gone: the act may be done all the same.
    except BaseException as error:
        write(f"{type(error).__name__}: {error}")
        raise
    write(DONE)


def _jobs_of(id: str) -> tuple[str, ...]:
    with contextlib.suppress(ValueError):
        return (ids.text(ids.parse(id)),)
    return ()
