"""The tokens of a file: who may do what through the doors. Only their digests are in the file.

[tokens.shop]
sha256 = "9f86d0..."               # of the token; `tarry tokens add` writes it
scopes = ["put", "read"]
queues = ["mail", "shop-*"]        # all queues without it
tasks  = ["shop.*"]                # to put; without it those whose own queue is one of these
rate   = "100/s"                   # requests of this token, for each server process
"""

import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from tarry.config.kinds import RATE
from tarry.config.parser import Kind, SettingsSource, read_file, section
from tarry.errors import ConfigError, NotAuthenticated
from tarry.model.duration import SECOND
from tarry.operate.access import Caller
from tarry.server.identity.entries import EntryCaller, EntryFile, EntrySettings, check_entry_name
from tarry.server.identity.request_rate import RequestRate


def _digest(written: str) -> bytes:
    if not re.fullmatch(r"[0-9a-f]{64}", written):
        raise ValueError("no SHA-256 in hexadecimal digits")
    return bytes.fromhex(written)


class TokenSettings(EntrySettings, frozen=True):
    """[tokens.NAME]."""

    sha256: Annotated[bytes, Kind("the SHA-256 of the token, 64 hexadecimal digits", str, _digest)] = b""
    rate: Annotated[str | None, RATE] = None
    """Requests in a period, for each server process."""


class TokenFileSettings(Struct, frozen=True):
    """The whole file."""

    tokens: dict[str, TokenSettings] = {}


def read_tokens(path: Path) -> dict[str, TokenSettings]:
    """The tokens of the file by name; ConfigError if it is missing or something in it is wrong."""
    source = read_file(path, str(path))
    if source is None:
        raise ConfigError(f"{path} does not exist: `tarry tokens add NAME --scope put` writes it")
    found = section(TokenFileSettings, source.table(), (), source).tokens
    for name, token in found.items():
        if not token.sha256:
            raise source.wrong(("tokens", name), "a sha256", "a token without one")
        check_entry_name(source, ("tokens", name), name)
    _refuse_twins(found, source)
    return found


def _refuse_twins(tokens: Mapping[str, TokenSettings], source: SettingsSource) -> None:
    # One token with two names would have the rights of whichever is found first.
    first: dict[bytes, str] = {}
    for name, token in tokens.items():
        if token.sha256 in first:
            raise source.wrong(
                ("tokens", name, "sha256"), f"another token than that of {first[token.sha256]}", token.sha256.hex()
            )
        first[token.sha256] = name


def new_token() -> str:
    """A new token: 256 random bits, with a prefix by which scanners for secrets can find it."""
    return f"tarry_{secrets.token_urlsafe(32)}"


def digest(token: str) -> bytes:
    """What the file keeps of a token."""
    # No salt and no slow hash: nobody can guess 256 random bits.
    return sha256(token.encode()).digest()


class TokenCaller(EntryCaller[TokenSettings]):
    """A caller with a token. Its rate is counted here, so that it lasts over connections."""

    kind = "token"

    def __init__(self, name: str, settings: TokenSettings) -> None:
        super().__init__(name, settings)
        self._rate = RequestRate(f"token {name}", settings.rate)

    def count_request(self, now: int) -> None:
        """Counts one request at `now` (microseconds of any clock); RateExceeded past the rate."""
        self._rate.count(now)


class TokenAccess:
    """Knows callers by the tokens of a file, which is read again when it changes.

    clock: seconds of a monotonic clock.
    """

    needs_token = takes_tokens = True
    takes_passwords = False

    def __init__(self, path: Path | str, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = EntryFile(Path(path), read_tokens, TokenCaller, clock=clock)

    def caller(self, headers: Mapping[str, str], address: str) -> Caller:
        """The caller with the token of the Authorization header; NotAuthenticated, RateExceeded."""
        now = self._file.look()
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise NotAuthenticated("this server asks for a token: send the header `Authorization: Bearer TOKEN`")
        caller = self._find(digest(token.strip()))
        if caller is None:
            raise NotAuthenticated("this token is not known here: it was revoked, or belongs to another server")
        caller.count_request(int(now * SECOND))
        return caller

    def person(self, headers: Mapping[str, str], address: str) -> Caller | None:
        """Nobody: there is no proxy."""
        return None

    def sign_in(self, name: str, password: str, address: str) -> Caller:
        """Nobody: there are no passwords."""
        raise NotAuthenticated("this server has no passwords: sign in with a token")

    def named(self, entry: str) -> Caller | None:
        """The caller whose token has this name; None: it was revoked."""
        return self._file.find(entry)

    def digest_of(self, entry: str) -> bytes:
        """What the file keeps of the token with this name; empty: there is none."""
        found = self._file.find(entry)
        return b"" if found is None else found.settings.sha256

    def _find(self, wanted: bytes) -> TokenCaller | None:
        found = None
        # Every one is compared, in constant time: the time of the answer tells nothing of the file.
        for caller in self._file.callers:
            if hmac.compare_digest(caller.settings.sha256, wanted):
                found = caller
        return found
