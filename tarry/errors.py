"""Every error that tarry raises on purpose: one tree, and each message is one line that says what to do.

Drivers' own errors are turned into these at the store's border and appear nowhere else.
"""

from collections.abc import Callable, Mapping
from typing import Any


class TarryError(Exception):
    """The root: catch this to catch all of them."""


class UsageError(TarryError):
    """A command was called as it cannot be: exit status 2."""


class ConfigError(TarryError):
    """A setting is unknown, of the wrong kind, or contradicts another."""


class AppError(TarryError):
    """The app cannot be found or imported."""


class ArgumentError(TarryError, TypeError):
    """An argument does not fit the task's signature, or cannot travel as JSON."""


class IdempotencyError(TarryError):
    """The name of a request was used before, for a request with other arguments."""


class BodyTooLarge(TarryError, ValueError):
    """A job's arguments take more bytes than `max_body` allows."""


class UnknownTask(TarryError, LookupError):
    """No task of that name is registered in this app."""


class JobNotFound(TarryError, LookupError):
    """No job has that id: it never existed, or it was forgotten after its time of keeping."""


class JobFailed(TarryError):
    """`result()` of a job that is dead; the message carries the task's own error."""


class JobCancelled(TarryError):
    """`result()` of a job that was cancelled or that expired before it could start."""


class ResultTimeout(TarryError, TimeoutError):
    """`result(timeout)` waited that long and the job had not finished."""


class StoreError(TarryError):
    """The store refuses, or cannot do, what was asked."""

    stored: bool | None = None
    """Of an enqueue: False, the job is surely not stored; None, it may be."""
    job: Any = None
    """Of an enqueue of one job: its handle, with the id that it has if it is stored."""
    again: Callable[[], Any] | None = None

    def send_again(self) -> Any:
        """Enqueues the very same once more, under the same ids, so that it is stored once however often it is sent:
        what the enqueue would have returned. TypeError if this is no error of an enqueue."""
        if self.again is None:
            raise TypeError("this error is of no enqueue, so there is nothing to send again")
        return self.again()

    async def asend_again(self) -> Any:
        """The same, awaited."""
        import asyncio  # noqa: PLC0415 - slow to load, and not everybody needs it

        return await asyncio.to_thread(self.send_again)


class StoreUnavailable(StoreError):
    """The store cannot be reached now; the same call may succeed later. What was asked may have been done all the same:
    of an enqueue, `stored` says whether that is so, and `send_again()` sends the very same job."""


class StoreAway(StoreUnavailable):
    """The store is known to be away, or could not be connected to: nothing was sent to it."""

    stored = False


class PartlyUnavailable(StoreUnavailable):
    """Of several stores that are used as one, some did not answer; what the others answered is in `answer`.

    missing: where the answer is one for each thing that was asked, the positions of those that only a store that is
    away could have answered, each with its error; what stands there in `answer` means nothing.
    """

    def __init__(self, message: str, answer: Any, missing: Mapping[int, StoreError] | None = None) -> None:
        super().__init__(message)
        self.answer = answer
        self.missing: Mapping[int, StoreError] = missing or {}


class StoreBusy(StoreUnavailable):
    """Another process held the store's write lock for longer than we wait."""


class StoreFull(StoreError):
    """No room: the disk or the server's memory is full; nothing was stored."""

    stored = False


class StoreReadOnly(StoreError):
    """The store can be read and not written."""

    stored = False


class StoreCorrupt(StoreError):
    """The database is damaged, or is no database at all."""


class StoreForeign(StoreError):
    """The database belongs to another program."""


class OtherDatabase(StoreError):
    """`connection=` is no connection to the database that is the store, so the two cannot commit as one."""


class StoreNewer(StoreError):
    """A newer tarry wrote this store's schema."""


class MasterError(TarryError):
    """A master is already running, is not running, or did not come up."""
