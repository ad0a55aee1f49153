"""A place for large payloads, as the settings name it."""

from abc import ABC, abstractmethod
from collections.abc import Collection

from msgspec import Struct

from tarry.errors import PayloadUnavailable

FILE, S3 = "file:///", "s3://"
HOW = 'write "file:///srv/tarry" or "s3://bucket/prefix"'


class StoredObject(Struct, frozen=True):
    """An object at a place."""

    name: str
    written: float
    """When, by the place's own clock: seconds since the epoch."""


class PayloadPlace(ABC):
    """Keeps objects by name. Safe from several threads, and after a fork. Every call ends in bounded time, and raises
    PayloadUnavailable, with the place and the cause, if the place does not do what it is asked for."""

    url: str
    """As the settings name it."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Stores an object: it is safe there when this returns, or nothing is left of it."""

    def renew(self, name: str, data: bytes) -> None:
        """The same of a small object that may be there already: also where there is no room for one more."""
        self.write(name, data)

    @abstractmethod
    def read(self, name: str, most: int) -> bytes | None:
        """At most so many bytes of an object; None: the place is there, and has no such object."""

    @abstractmethod
    def delete(self, names: Collection[str]) -> None:
        """Deletes objects; those that are not there are no error."""

    @abstractmethod
    def page(self, namespace: str, after: str, limit: int) -> list[StoredObject]:
        """The first so many objects of a namespace behind that name, in the order of names, or some more."""

    @abstractmethod
    def time_of(self, name: str) -> float:
        """When an object that is there was written, as in `StoredObject`."""

    def unavailable(self, doing: str, cause: object) -> PayloadUnavailable:
        """The error that says that the place does not do that. doing: `cannot be written`."""
        return PayloadUnavailable(f"[payloads] {self.url} {doing}: {cause}")
