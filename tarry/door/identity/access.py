"""Who may do what through a door."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol


class Scope(StrEnum):
    """What a caller may do."""

    PUT = "put"
    """Enqueue jobs, and read what became of those."""
    TAKE = "take"
    """Claim jobs, and say how they ended."""
    READ = "read"
    """Look at everything."""
    OPERATE = "operate"
    """Cancel, retry, move and delete jobs; pause queues; set limits; run schedules."""
    ADMIN = "admin"
    """Change what the server does: tasks, and whatever else is set for all."""


class Caller(Protocol):
    """Who sent a request."""

    @property
    def name(self) -> str:
        """For logs: the name of its token; empty if it needed none."""

    def check(self, scope: Scope, queue: str | None = None) -> None:
        """NotAllowed if this caller may not do that with that queue; None: with any queue at all. Busy if it calls too
        often."""

    def allows(self, scope: Scope, queue: str) -> bool:
        """Whether it may do that with that queue."""


class DoorAccess(Protocol):
    """Knows the callers."""

    def caller(self, headers: Mapping[str, str], address: str) -> Caller:
        """The caller of a request with these headers (names in small letters), from this address. NotAuthenticated,
        Busy."""

    @property
    def needs_token(self) -> bool:
        """Whether a caller has to show a token."""

    def named(self, name: str) -> Caller | None:
        """The caller whose token has this name; None: there is none any more."""

    def digest_of(self, name: str) -> bytes:
        """What is kept of the token with this name; empty: there is none."""


class Anyone:
    """A caller that may do everything."""

    name = ""

    def check(self, scope: Scope, queue: str | None = None) -> None:
        """Allows it."""

    def allows(self, scope: Scope, queue: str) -> bool:
        """Always true."""
        return True


class Anybody:
    """The access where no tokens are configured: everybody may do everything."""

    _anyone = Anyone()
    needs_token = False

    def caller(self, headers: Mapping[str, str], address: str) -> Caller:
        """The same for all."""
        return self._anyone

    def named(self, name: str) -> Caller | None:
        """Nobody: there are no tokens."""
        return None

    def digest_of(self, name: str) -> bytes:
        """Empty: there are no tokens."""
        return b""
