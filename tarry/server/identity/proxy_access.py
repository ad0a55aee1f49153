"""Knows people by the header of a proxy that has signed them in, and all others by the files of tokens and passwords.

Only addresses that the settings name may send that header. From any other it is ignored, as if it were not there.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path

from tarry.config.server_settings import UNIX, ServerConfig
from tarry.errors import NotAllowed, NotAuthenticated
from tarry.operate.access import Caller
from tarry.server.identity.access import DoorAccess
from tarry.server.identity.entries import PROXY_ENTRY, EntryFile
from tarry.server.identity.passwords import open_access
from tarry.server.identity.people import MOST_NAME, PersonCaller, person_name, read_people

log = logging.getLogger("tarry.server")

MOST_KNOWN = 1000
"""People with the default role that are remembered."""
TOLD_EVERY = 60.0
"""Seconds between two lines about headers that were ignored."""


class TrustedProxies:
    """The addresses that may say who asks. written: addresses, networks, and `unix`."""

    def __init__(self, written: Sequence[str]) -> None:
        self._has_unix = UNIX in written
        self._networks = [ip_network(one) for one in written if one != UNIX]

    def has(self, address: str) -> bool:
        """Whether a client with this address is one of them; empty: it came by a unix socket."""
        if not address:
            return self._has_unix
        try:
            found = ip_address(address)
        except ValueError:
            return False
        # A socket for both kinds shows an IPv4 address so.
        if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)


class ProxyAccess:
    """See above. others: knows those without the header. clock: monotonic seconds."""

    needs_token = True

    def __init__(
        self,
        others: DoorAccess,
        header: str,
        proxies: TrustedProxies,
        people: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._others, self._header, self._proxies, self._clock = others, header, proxies, clock
        self._file = EntryFile(people, read_people, PersonCaller, clock=clock)
        self._unlisted: dict[str, PersonCaller] = {}
        self._ignored, self._told_at = 0, -TOLD_EVERY

    @property
    def takes_tokens(self) -> bool:
        """Whether there are tokens."""
        return self._others.takes_tokens

    @property
    def takes_passwords(self) -> bool:
        """Whether people may sign in with a name and a password."""
        return self._others.takes_passwords

    def caller(self, headers: Mapping[str, str], address: str) -> Caller:
        """See `DoorAccess`."""
        person = self.person(headers, address)
        if person is None and not self._others.needs_token:
            raise NotAuthenticated("this server knows people by its proxy: come by way of that")
        return person or self._others.caller(headers, address)

    def person(self, headers: Mapping[str, str], address: str) -> Caller | None:
        """See `DoorAccess`."""
        # By all headers: a look for one would find the first of two.
        values = [value for name, value in headers.items() if name.lower() == self._header.lower()]
        if not values:
            return None
        if not self._proxies.has(address):
            self._note_ignored(address)
            return None
        if len(values) > 1:
            raise NotAuthenticated(f"the header {self._header} came twice: the proxy has to replace that of clients")
        if headers.get("authorization", "").partition(" ")[0].lower() == "bearer":
            raise NotAuthenticated(f"a token came beside the header {self._header}: only one may say who asks")
        name = _name_of(values[0])
        if name is None:
            raise NotAuthenticated(f"the header {self._header} names nobody: 1 to {MOST_NAME} characters of UTF-8")
        return self._person(name)

    def sign_in(self, name: str, password: str, address: str) -> Caller:
        """See `DoorAccess`."""
        if not self._others.takes_passwords:
            raise NotAuthenticated("this server has no passwords: come by way of its proxy")
        return self._others.sign_in(name, password, address)

    def named(self, entry: str) -> Caller | None:
        """See `DoorAccess`."""
        if not entry.startswith(PROXY_ENTRY):
            return self._others.named(entry)
        return self._file.find(entry) or self._of_default_role(entry)

    def digest_of(self, entry: str) -> bytes:
        """See `DoorAccess`."""
        return self._others.digest_of(entry)

    def _person(self, name: str) -> PersonCaller:
        entry = PROXY_ENTRY + name
        found = self._file.find(entry) or self._of_default_role(entry)
        if found is None:
            raise NotAllowed(f"{name} has no role here: add the name to [people] of the people's file, or default_role")
        return found

    def _of_default_role(self, entry: str) -> PersonCaller | None:
        default = self._file.find(PROXY_ENTRY)
        if default is None:
            return None
        found = self._unlisted.get(entry)
        if found is None or found.settings != default.settings:
            if len(self._unlisted) >= MOST_KNOWN:
                self._unlisted.pop(next(iter(self._unlisted)))
            found = self._unlisted[entry] = PersonCaller(entry, default.settings)
        return found

    def _note_ignored(self, address: str) -> None:
        self._ignored += 1
        now = self._clock()
        if now - self._told_at >= TOLD_EVERY:
            said = "%d requests had the header %s and came from none of [server] trusted_proxies, such as %s: ignored"
            log.warning(said, self._ignored, self._header, address or "a unix socket")
            self._ignored, self._told_at = 0, now


def _name_of(value: str) -> str | None:
    try:
        # Servers read headers as Latin-1, and proxies write UTF-8.
        return person_name(value.encode("latin-1").decode())
    except UnicodeError:
        return None


def configured_access(config: ServerConfig) -> DoorAccess:
    """Who may come in, by the settings; ConfigError."""
    access = open_access(config.tokens, config.passwords)
    if config.trusted_header is None or config.people is None:
        return access
    return ProxyAccess(access, config.trusted_header, TrustedProxies(config.trusted_proxies), config.people)
