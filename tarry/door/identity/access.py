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
        """For logs: the name of its token or password; empty if it needed none."""

    @property
    def entry(self) -> str:
        """What names its token or password among all of them: a session is made of it."""

    @property
    def queues(self) -> tuple[str, ...]:
        """Names and patterns (`shop-*`) of the queues that it may use; empty: all of them."""

    @property
    def namespace(self) -> str:
        """What stands before its keys in the store, so that it neither takes nor sees those of others; empty: it may
        use any key."""

    def check_task(self, task: str, queue: str | None) -> None:
        """NotAllowed if it may not put jobs of that task. queue: the task's own; None: the task is not known here."""

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
        """Whether a caller has to say who it is."""

    @property
    def takes_tokens(self) -> bool:
        """Whether there are tokens."""

    @property
    def takes_passwords(self) -> bool:
        """Whether people may sign in with a name and a password."""

    def sign_in(self, name: str, password: str, address: str) -> Caller:
        """The person with this password, from this address. It may take a tenth of a second of a processor.
        NotAuthenticated; RateExceeded after failures."""

    def named(self, entry: str) -> Caller | None:
        """The caller with this `entry`; None: there is none any more."""

    def digest_of(self, entry: str) -> bytes:
        """What is kept of the token or password of this entry; empty: there is none."""


def is_as_before(access: DoorAccess, caller: Caller) -> bool:
    """Whether a caller still has the token or password that it came with, and with the same rights."""
    # Of an entry that has changed there is another caller.
    return not access.needs_token or access.named(caller.entry) is caller


class Anyone:
    """A caller that may do everything."""

    name = entry = namespace = ""
    queues: tuple[str, ...] = ()

    def check_task(self, task: str, queue: str | None) -> None:
        """Allows it."""

    def check(self, scope: Scope, queue: str | None = None) -> None:
        """Allows it."""

    def allows(self, scope: Scope, queue: str) -> bool:
        """Always true."""
        return True


ANYONE = Anyone()


class Anybody:
    """The access where neither tokens nor passwords are configured: everybody may do everything."""

    needs_token = takes_tokens = takes_passwords = False

    def caller(self, headers: Mapping[str, str], address: str) -> Caller:
        """The same for all."""
        return ANYONE

    def sign_in(self, name: str, password: str, address: str) -> Caller:
        """The same for all."""
        return ANYONE

    def named(self, entry: str) -> Caller | None:
        """Nobody: there are no tokens."""
        return None

    def digest_of(self, entry: str) -> bytes:
        """Empty: there are no tokens."""
        return b""
