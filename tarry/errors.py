"""Every error that tarry raises on purpose, in one tree. Each message is one line that says what to do.

The stores turn the errors of their drivers into these, so drivers' errors appear nowhere else.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class TarryError(Exception):
    """The root: catch this to catch all of them."""


class TarryDeprecated(DeprecationWarning):
    """Something works as before, and goes in a later version: the message says in which, and what to take instead."""

    def __init__(self, what: str, goes_in: str, instead: str) -> None:
        super().__init__(f"{what} goes in tarry {goes_in}: {instead}")


class UsageError(TarryError):
    """The arguments of a command are wrong: exit status 2.

    field: which one, as a request by HTTP names it; None: no single one.
    """

    def __init__(self, message: str = "", field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ConfigError(TarryError):
    """A setting is unknown, of the wrong kind, or contradicts another."""


class AppError(TarryError):
    """The app cannot be found or imported."""


class ArgumentError(TarryError, TypeError):
    """An argument does not fit the task's signature, or cannot travel as JSON.

    at: where in the arguments, as `[0]` or `.name`, perhaps deeper; empty: at no single one.
    """

    def __init__(self, message: str = "", at: str = "") -> None:
        super().__init__(message)
        self.at = at
        self.field: str | None = None
        """The same, as a request by HTTP names it."""


class ValueSealed(TarryError):
    """A result, or another value of a job, is sealed with a key that this process does not have, or was altered."""


class PayloadLost(TarryError):
    """Arguments or a result that were kept outside of the store are gone, or are not what was written."""


class IdempotencyError(TarryError):
    """The name of a request was used before, with other arguments."""


class BodyTooLarge(TarryError, ValueError):
    """A job's arguments take more bytes than `max_body` allows."""


class UnknownTask(TarryError, LookupError):
    """No task of that name is registered in this app."""


class Busy(TarryError):
    """More is asked for than can be done now: nothing was stored, and the same call may succeed later.

    retry_after: seconds after which to try again.
    """

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RateExceeded(Busy):
    """The caller sends more requests than its token may: nothing was done."""


class Draining(TarryError):
    """The server is about to end and takes no new jobs; another one does, or will soon. Nothing was stored.

    retry_after: seconds after which to try again.
    """

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Outdated(TarryError):
    """What is to be changed has changed since the caller saw it: nothing was done."""


class NotHeld(TarryError):
    """The caller does not hold this job, or holds it no longer: nothing was changed."""


class NotAuthenticated(TarryError):
    """The request names no caller that is known here."""


class NotAllowed(TarryError):
    """The caller may not do this."""


class JobNotFound(TarryError, LookupError):
    """No job has that id: it never existed, or it was pruned."""


class ScheduleNotFound(TarryError, LookupError):
    """The store keeps no schedule of that name."""


class TooManySchedules(TarryError, ValueError):
    """The store keeps as many schedules as `max_schedules` allows. The new one is not stored."""


class OperationNotFound(TarryError, LookupError):
    """No operation has that id: it never existed, or its time of keeping is over."""


class ErrorGroupNotFound(TarryError, LookupError):
    """No group of errors has that id: there never was one, or it was deleted, or it had no error for a month."""


class TooManyOperations(TarryError):
    """So many operations are under way that no other begins."""


class HostNotFound(TarryError, LookupError):
    """No master of that name is known to the store, or none that could take a broadcast."""


class ConnectionNotFound(TarryError, LookupError):
    """No connection of a server process has that id, or not any more."""


class TooManyRequests(TarryError):
    """So many requests to a master are under way that it takes no other."""


class StepError(TarryError):
    """A durable step cannot be kept or skipped. No other attempt would help, so the job is dead."""


class StepsChanged(StepError):
    """The code of a task changed under a job that runs: a step which is done is another one now."""


class StepLimit(StepError):
    """A job has too many steps, or too much to keep of them."""


class JobFailed(TarryError):
    """`result()` of a job that is dead; the message carries the task's own error."""


class FlowFailed(JobFailed):
    """`result()` of a flow that is dead.

    node: the handle of the job that failed; None: no single one did, as when its deadline has passed.
    """

    def __init__(self, message: str = "", node: Any = None) -> None:
        super().__init__(message)
        self.node = node


class JobCancelled(TarryError):
    """`result()` of a job that was cancelled or that expired before it could start."""


class ResultTimeout(TarryError, TimeoutError):
    """`result(timeout)` waited that long and the job had not finished."""


class LimitTimeout(TarryError, TimeoutError):
    """`app.limits.take(..., timeout=)` waited that long and no place under the limit was free."""


class UnknownLimit(TarryError, LookupError):
    """`app.limits.take` of a name that has no limit: nothing would be counted."""


class StoreError(TarryError):
    """The store refuses the call, or cannot do it."""

    stored: bool | None = None
    """After an enqueue: False: the job is surely not stored; None: it may be."""
    job: Any = None
    """After an enqueue of one job: its handle, with the id that the job has if it is stored."""
    job_ids: Sequence[str] = ()
    """After an enqueue: the ids that its jobs, or its flow, have if they are stored. Empty: a server gives them."""
    again: Callable[[], Any] | None = None

    @property
    def job_id(self) -> str | None:
        """After an enqueue of one job or flow: the id that it has if it is stored; None after any other call."""
        return self.job_ids[0] if len(self.job_ids) == 1 else None

    def send_again(self) -> Any:
        """Sends the same jobs again, and returns what the enqueue would have returned. TypeError if this is not the
        error of an enqueue."""
        # The ids are the same, so each job is stored once, however often it is sent.
        if self.again is None:
            raise TypeError("this error is of no enqueue, so there is nothing to send again")
        return self.again()

    async def asend_again(self) -> Any:
        """The same, awaited."""
        import asyncio  # noqa: PLC0415 - slow to load, and few programs need it

        return await asyncio.to_thread(self.send_again)


class StoreMissing(StoreError):
    """There is no store yet at that URL, and the caller only reads."""

    def __init__(self, url: str) -> None:
        super().__init__(f"no store at {url} yet: the first `tarry start` or enqueue makes it")
        self.url = url


class StoreUnavailable(StoreError):
    """The store cannot be reached now; the same call may succeed later. The call may have taken effect all the same:
    after an enqueue, `stored` is False if it surely has not, and `send_again()` sends the same job."""


class StoreAway(StoreUnavailable):
    """The store is known to be away, or no connection was possible: nothing was sent to it."""

    stored = False


class PartlyUnavailable(StoreUnavailable):
    """Some of several stores that are used as one did not answer. `answer` has what the others answered.

    missing: for a call that answers each of its items, the positions of the items whose store is away, each with its
    error. The elements of `answer` at these positions mean nothing.
    """

    def __init__(self, message: str, answer: Any, missing: Mapping[int, StoreError] | None = None) -> None:
        super().__init__(message)
        self.answer = answer
        self.missing: Mapping[int, StoreError] = missing or {}


class PayloadUnavailable(StoreUnavailable):
    """The place of large arguments and results, `[payloads] to`, cannot be reached now, or refuses the call. After an
    enqueue: the job is not stored."""

    stored = False


class StoreBusy(StoreUnavailable):
    """Another process held the store's write lock for longer than the timeout."""


class StoreFull(StoreError):
    """No room: the disk or the server's memory is full; nothing was stored."""

    stored = False


class QueueFull(StoreError):
    """As many jobs of the queue wait as its `max_waiting` allows. The job is not stored.

    retry_after: seconds after which there may be room again. said: what a server said of it; then queue and most are
    not known.
    """

    stored = False

    def __init__(self, queue: str, most: int, retry_after: float = 1.0, said: str = "") -> None:
        super().__init__(queue, most, retry_after, said)
        self.queue, self.most, self.retry_after, self.said = queue, most, retry_after, said

    def __str__(self) -> str:
        if self.said:
            return self.said
        again = f"try again in {self.retry_after:.0f} s, add workers, or raise max_waiting of [queues.{self.queue}]"
        return f"queue {self.queue} is full: {self.most:,} of its jobs wait; {again}"


class TenantFull(QueueFull):
    """As many jobs of one key of a task wait as its `max_waiting` allows. The job is not stored."""

    def __init__(
        self, queue: str, most: int, retry_after: float = 1.0, said: str = "", *, task: str = "", tenant: str = ""
    ) -> None:
        super().__init__(queue, most, retry_after, said)
        self.task, self.tenant = task, tenant

    def __str__(self) -> str:
        if self.said:
            return self.said
        key = f"each:{self.task}={self.tenant}"
        if not self.most:
            return f"{key} takes no new jobs: its max_waiting is 0; tarry limits set or reset {key} changes that"
        return (
            f"{key} is full: {self.most:,} of its jobs are ready in queue {self.queue}, and its max_waiting is"
            f" {self.most:,}; try again in {self.retry_after:.0f} s, or give it more: tarry limits set {key}"
        )


class StoreReadOnly(StoreError):
    """The store can be read, but not written."""

    stored = False


class StoreCorrupt(StoreError):
    """The database is damaged, or the file is not a database."""


class StoreForeign(StoreError):
    """The database belongs to another program."""


class OtherDatabase(StoreError):
    """`connection=` leads to another database than the store's, so the two cannot commit as one."""


class StoreNewer(StoreError):
    """A newer tarry wrote this store's schema."""


class MasterError(TarryError):
    """A master is already running, is not running, or did not come up."""
