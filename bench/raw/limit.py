"""What is done to find a store's raw limit, whatever the store."""

import importlib
from typing import Any, Protocol, cast

from bench.app import BODY

CONTENT = f'[123456,"{BODY}"]'.encode()


class Raw(Protocol):
    """One connection to an empty place in a store."""

    def batch(self, size: int) -> Any:
        """So many new jobs, as `insert` takes them."""

    def insert(self, batch: Any) -> None:
        """Keeps them, as safe as an enqueue."""

    def exchange(self, finished: list[Any], size: int) -> list[Any]:
        """Finishes those of the claim before, and claims the next, so that a crash loses none; one turn of a worker."""

    def close(self) -> None:
        """Gives the connection back."""


class Waited(Raw, Protocol):
    """A store whose server tells who waits."""

    def hand_over(self) -> None:
        """Keeps one job and wakes who waits."""

    def wait(self, seconds: float) -> bool:
        """Claims one job once it is there; False if none came in that time."""


def opened(kind: str, target: str, durable: bool) -> Raw:
    """A connection. target: a path or URL. durable: for who inserts; a claim that is lost is only a re-run."""
    module = importlib.import_module(f"bench.raw.{kind}")
    return cast("Raw", module.opened(target, durable))


def emptied(kind: str, target: str) -> None:
    """Makes the place, or makes it empty."""
    importlib.import_module(f"bench.raw.{kind}").emptied(target)


def removed(kind: str, target: str) -> None:
    """Leaves nothing behind."""
    importlib.import_module(f"bench.raw.{kind}").removed(target)
