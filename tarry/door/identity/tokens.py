"""The tokens of a file: who may do what through the doors. Only their digests are in the file.

[tokens.shop]
sha256 = "9f86d0..."               # of the token; `tarry tokens add` writes it
scopes = ["put", "read"]
queues = ["mail", "shop-*"]        # all queues without it
rate   = "100/s"                   # requests of this token, for each server process
"""

import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from tarry.door.identity.access import Caller, Scope
from tarry.door.request_rate import RequestRate
from tarry.errors import ConfigError, NotAllowed, NotAuthenticated
from tarry.kinds import RATE, TEXT
from tarry.model.duration import SECOND
from tarry.settings import Kind, SettingsSource, read_file, section

log = logging.getLogger("tarry.server")

CHECK_EVERY = 1.0
"""Seconds between two looks at the file."""
_SCOPES = tuple(scope.value for scope in Scope)
_Texts = Annotated[list[str], Meta(min_length=1)]


def _digest(written: str) -> bytes:
    if not re.fullmatch(r"[0-9a-f]{64}", written):
        raise ValueError("no SHA-256 in hexadecimal digits")
    return bytes.fromhex(written)


def _scopes(written: list[str]) -> frozenset[Scope]:
    return frozenset(Scope(name) for name in written)


class TokenSettings(Struct, frozen=True):
    """[tokens.NAME]."""

    sha256: Annotated[bytes, Kind("the SHA-256 of the token, 64 hexadecimal digits", str, _digest)] = b""
    scopes: Annotated[
        frozenset[Scope],
        Kind(f"a list of scopes such as [{', '.join(map(repr, _SCOPES))}]", list[str], _scopes, names=_SCOPES),
    ] = frozenset()
    queues: Annotated[
        tuple[str, ...],
        Kind(
            'a list of queues or patterns such as ["mail", "shop-*"]', Annotated[list[str], Meta(min_length=1)], tuple
        ),
    ] = ("*",)
    """Names of queues, in which `*` stands for any characters."""
    rate: Annotated[str | None, RATE] = None
    """Requests in a period, for each server process."""
    note: Annotated[str, TEXT] = ""
    """For people."""


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


def _pattern(queues: Sequence[str]) -> re.Pattern[str]:
    """Matches the names of these queues. Only `*` is special: names may hold brackets and question marks."""
    each = (".*".join(re.escape(part) for part in re.split(r"\*+", queue)) for queue in queues)
    return re.compile("|".join(each), re.DOTALL)


class TokenCaller:
    """A caller with a token. Its rate is counted here, so that it lasts over connections."""

    def __init__(self, name: str, settings: TokenSettings) -> None:
        self.name, self.settings = name, settings
        self._queues = _pattern(settings.queues)
        self._rate = RequestRate(f"token {name}", settings.rate)

    def check(self, scope: Scope, queue: str | None = None) -> None:
        """NotAllowed if the token has no such scope, or not for that queue. None: for any queue at all."""
        if not self._has(scope):
            raise NotAllowed(f"token {self.name} may not {scope}: add the scope to it in the tokens' file")
        if queue is not None and not self._may_use(queue):
            raise NotAllowed(f"token {self.name} is not for queue {queue}: only {', '.join(self.settings.queues)}")

    def allows(self, scope: Scope, queue: str) -> bool:
        """Whether it may do that with that queue."""
        return self._has(scope) and self._may_use(queue)

    def _has(self, scope: Scope) -> bool:
        return scope in self.settings.scopes or Scope.ADMIN in self.settings.scopes

    def _may_use(self, queue: str) -> bool:
        return self._queues.fullmatch(queue) is not None

    def count_request(self, now: int) -> None:
        """Counts one request at `now` (microseconds of any clock); RateExceeded past the rate."""
        self._rate.count(now)


class TokenAccess:
    """Knows callers by the tokens of a file, which is read again when it changes.

    clock: seconds of a monotonic clock.
    """

    needs_token = True

    def __init__(self, path: Path | str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = Path(path), clock
        self._seen = self._signature()
        self._callers = _callers(read_tokens(self._path), {})
        self._checked = clock()

    def caller(self, headers: Mapping[str, str], address: str) -> Caller:
        """The caller with the token of the Authorization header; NotAuthenticated, RateExceeded."""
        now = self._look()
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise NotAuthenticated("this server asks for a token: send the header `Authorization: Bearer TOKEN`")
        caller = self._find(digest(token.strip()))
        if caller is None:
            raise NotAuthenticated("this token is not known here: it was revoked, or belongs to another server")
        caller.count_request(int(now * SECOND))
        return caller

    def named(self, name: str) -> Caller | None:
        """The caller whose token has this name; None: it was revoked."""
        self._look()
        return next((caller for caller in self._callers if caller.name == name), None)

    def digest_of(self, name: str) -> bytes:
        """What the file keeps of the token with this name; empty: there is none."""
        return next((caller.settings.sha256 for caller in self._callers if caller.name == name), b"")

    def _look(self) -> float:
        """Reads the file again if it is time for that; returns the time."""
        now = self._clock()
        if now - self._checked >= CHECK_EVERY:
            self._checked = now
            self._read_again()
        return now

    def _find(self, wanted: bytes) -> TokenCaller | None:
        found = None
        # Every one is compared, in constant time: the time of the answer tells nothing of the file.
        for caller in self._callers:
            if hmac.compare_digest(caller.settings.sha256, wanted):
                found = caller
        return found

    def _read_again(self) -> None:
        signature = self._signature()
        if signature == self._seen:
            return
        self._seen = signature
        try:
            self._callers = _callers(read_tokens(self._path), {caller.name: caller for caller in self._callers})
        except ConfigError as error:
            # A slip in the file must not shut everybody out.
            log.error("the tokens stay as they were: %s", error)

    def _signature(self) -> tuple[Any, ...]:
        try:
            found = os.stat(self._path)
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns


def _callers(tokens: Mapping[str, TokenSettings], before: Mapping[str, TokenCaller]) -> list[TokenCaller]:
    """A caller for each token. An unchanged one stays, and with it the count of its requests."""
    return [
        before[name] if name in before and before[name].settings == settings else TokenCaller(name, settings)
        for name, settings in tokens.items()
    ]
