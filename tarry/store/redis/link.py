"""How the Redis store talks to its server: scripts and commands go in, raw answers come out, and whatever goes wrong is
an error of tarry's.

A link opens its connections by itself and again when they break. What was certainly not done is sent again within the
link's time limit; what may have been done is not, unless the script says that this is harmless.
"""

from collections.abc import Sequence
from hashlib import sha1
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from tarry.store.shared.bell import Bell

Word: TypeAlias = bytes | str | int | float


class Script(Struct, frozen=True):
    """A Lua script."""

    name: str
    text: str
    repeatable: bool = False
    """Running it twice leaves the same, and answers the same, as running it once: so where an answer was lost, the link
    sends it again instead of raising StoreUnavailable. Never so of a claim."""
    sha: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "sha", sha1(self.text.encode(), usedforsecurity=False).hexdigest())


class Call(NamedTuple):
    """A script to be run, with its KEYS and ARGV."""

    script: Script
    keys: Sequence[bytes | str]
    args: Sequence[Word]


class Link(Protocol):
    """A way to one server, or to whoever has a hash slot. Safe to use from several threads.

    Answers are raw: bytes, int, list, None. Every call raises StoreUnavailable (it may be sent again later), StoreFull,
    StoreReadOnly, StoreForeign or StoreError.
    """

    url: str
    """Without the password."""

    def run(self, script: Script, keys: Sequence[bytes | str], args: Sequence[Word]) -> Any:
        """One script, in one round trip."""

    def run_all(self, calls: Sequence[Call]) -> list[Any]:
        """Several scripts, in their order, in one round trip; not one transaction. If any fails, its error is raised,
        and what the others did stays."""

    def command(self, *words: Word) -> Any:
        """One plain command."""

    def replicated(self, count: int, seconds: float, to_disk: bool) -> None:
        """Returns once so many replicas have what this thread wrote last, in memory or also on disk; StoreUnavailable
        if they do not say so in that time, or the connection broke in between."""

    def bell(self, channel: str) -> Bell:
        """A bell that hears what is PUBLISHed on `channel:w` (work), `:r` (result), `:f` (follow) and `:c` (recall),
        whatever it says. Of work, only one of each kind of worker hears where the lines of `redis.bell_turn` are."""

    def close(self) -> None:
        """Closes the connections. Twice is fine."""
