"""Who may do what through a door."""

from collections.abc import Mapping
from typing import Protocol

from tarry.operate.access import ANYONE, Caller


class DoorAccess(Protocol):
    """Knows the callers."""

    def caller(self, headers: Mapping[str, str], address: str) -> Caller:
        """The caller of a request with these headers (names in small letters), from this address. NotAuthenticated,
        Busy."""

    def person(self, headers: Mapping[str, str], address: str) -> Caller | None:
        """Whom a trusted proxy has signed in for this request; None: nobody. NotAuthenticated, NotAllowed: the proxy
        names somebody, and that does not count."""

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


class OpenAccess:
    """The access where neither tokens nor passwords are configured: everybody may do everything."""

    needs_token = takes_tokens = takes_passwords = False

    def caller(self, headers: Mapping[str, str], address: str) -> Caller:
        """The same for all."""
        return ANYONE

    def person(self, headers: Mapping[str, str], address: str) -> Caller | None:
        """Nobody: there is no proxy."""
        return None

    def sign_in(self, name: str, password: str, address: str) -> Caller:
        """The same for all."""
        return ANYONE

    def named(self, entry: str) -> Caller | None:
        """Nobody: there are no tokens."""
        return None

    def digest_of(self, entry: str) -> bytes:
        """Empty: there are no tokens."""
        return b""
