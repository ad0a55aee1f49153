"""What the Redis store needs from its connections: they take scripts and commands, return raw replies, and raise errors
of tarry.

A link opens its connections by itself, and again when they break. Within its time limit it sends again what was
certainly not done. What may have been done is sent again only if the script says that this is harmless.
"""

from collections.abc import Sequence
from hashlib import sha1
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from tarry.store.rules.sleeper import Wakeup

Word: TypeAlias = bytes | str | int | float


class FunctionLibrary(Struct, frozen=True):
    """Redis Functions: the server makes them once and keeps them, while it makes a script's functions at each call."""

    name: str
    text: str


class Script(Struct, frozen=True):
    """A Lua script."""

    name: str
    text: str
    repeatable: bool = False
    """Running it twice leaves and answers the same as running it once. So after a lost answer the link sends it again
    instead of raising StoreUnavailable. A claim is never repeatable."""
    library: FunctionLibrary | None = None
    """Has a function that does the same; it is called instead where the server knows functions and allows them."""
    function: str = ""
    """The function's name."""
    sha: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "sha", sha1(self.text.encode(), usedforsecurity=False).hexdigest())


class ScriptCall(NamedTuple):
    """A script to be run, with its KEYS and ARGV."""

    script: Script
    keys: Sequence[bytes | str]
    args: Sequence[Word]


class RedisLink(Protocol):
    """Connections to one server, or to the node that has a hash slot. Safe to use from several threads.

    Answers are raw: bytes, int, list, None. Every call raises StoreUnavailable (it may be sent again later), StoreFull,
    StoreReadOnly, StoreForeign or StoreError.
    """

    url: str
    """Without the password."""

    def run(self, script: Script, keys: Sequence[bytes | str], args: Sequence[Word]) -> Any:
        """One script, in one round trip."""

    def run_all(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Several scripts, in their order, in one round trip, but not in one transaction. If one fails, its error is
        raised, and what the others did stays."""

    def command(self, *words: Word) -> Any:
        """One plain command."""

    def wait_for_replicas(self, count: int, seconds: float, to_disk: bool) -> None:
        """Returns once so many replicas have what this thread wrote last, in memory or also on disk. StoreUnavailable:
        they did not say so in time, or the connection broke meanwhile."""

    def wakeup(self, prefix: str) -> Wakeup:
        """A new sleeper on the store, or the part of a store, whose keys begin with this."""

    def worker_wakeup(self, prefix: str) -> Wakeup:
        """The same for a worker: a `LineWakeup` where work wakes one worker of each kind."""

    def close(self) -> None:
        """Closes the connections. Twice is fine."""
