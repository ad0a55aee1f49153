"""The passwords of people who use the console: who may sign in, and what each may do. The file has only salted hashes.

[passwords.ann]
scrypt = "32768$8$3$mR1f...$Tq0w..."   # cost, block size, parallelism, salt, hash; `tarry passwords add` writes it
scopes = ["read", "operate"]
queues = ["mail", "shop-*"]            # all queues without it

scrypt, from Python's own hashlib: it takes memory as well as time, so that hardware made for guessing gains little, and
it needs no library beside Python (argon2 would).
"""

import hashlib
import hmac
import secrets
import time
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from tarry.config.parser import Kind, read_file, section
from tarry.errors import ConfigError, NotAuthenticated
from tarry.operate.access import Caller
from tarry.server.identity.access import DoorAccess, OpenAccess
from tarry.server.identity.entries import (
    PASSWORD_ENTRY,
    EntryCaller,
    EntryFile,
    EntrySettings,
    check_entry_name,
)
from tarry.server.identity.sign_in_tries import SignInTries
from tarry.server.identity.tokens import TokenAccess

LEAST, MOST = 8, 1024
"""Characters of a new password at least; bytes of any password at most."""
_COST, _BLOCK, _LANES = 2**15, 8, 3
"""What OWASP recommends for scrypt with 32 MB."""
_MOST_MEMORY = 256 * 2**20
_SALT, _KEY = 16, 32


class PasswordHash(Struct, frozen=True):
    """What is kept of a password."""

    cost: int
    block: int
    lanes: int
    salt: bytes
    key: bytes

    def __str__(self) -> str:
        """As the file has it."""
        salt, key = (b64encode(one).decode() for one in (self.salt, self.key))
        return f"{self.cost}${self.block}${self.lanes}${salt}${key}"

    def matches(self, password: str) -> bool:
        """Whether it is of this password. It takes the same time if it is not."""
        return hmac.compare_digest(self.key, _derive(password, self.cost, self.block, self.lanes, self.salt))


def hash_password(password: str, cost: int = _COST) -> PasswordHash:
    """What is kept of a new password, with a salt of its own. cost: a power of 2."""
    salt = secrets.token_bytes(_SALT)
    return PasswordHash(cost, _BLOCK, _LANES, salt, _derive(password, cost, _BLOCK, _LANES, salt))


def _derive(password: str, cost: int, block: int, lanes: int, salt: bytes) -> bytes:
    # One letter may be written as several characters, and keyboards differ in that.
    plain = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")[:MOST]
    return hashlib.scrypt(plain, salt=salt, n=cost, r=block, p=lanes, maxmem=_MOST_MEMORY, dklen=_KEY)


def _parse(written: str) -> PasswordHash:
    cost, block, lanes, salt, key = written.split("$")
    found = PasswordHash(
        int(cost), int(block), int(lanes), b64decode(salt, validate=True), b64decode(key, validate=True)
    )
    is_power = found.cost > 1 and found.cost & (found.cost - 1) == 0
    # More memory than that is refused by the hash itself, and time is bounded with it.
    fits = is_power and 0 < 128 * found.block * found.cost < _MOST_MEMORY // 2 and 0 < found.lanes <= 16
    if not fits or len(found.salt) < _SALT or len(found.key) != _KEY:
        raise ValueError("no such hash")
    return found


class PasswordSettings(EntrySettings, frozen=True):
    """[passwords.NAME]."""

    scrypt: Annotated[PasswordHash | None, Kind("a hash as `tarry passwords add` writes it", str, _parse)] = None


class PasswordFileSettings(Struct, frozen=True):
    """The whole file."""

    passwords: dict[str, PasswordSettings] = {}


def read_passwords(path: Path) -> dict[str, PasswordSettings]:
    """The entries of the file by name; ConfigError if it is missing or something in it is wrong."""
    source = read_file(path, str(path))
    if source is None:
        raise ConfigError(f"{path} does not exist: `tarry passwords add NAME --scope read` writes it")
    found = section(PasswordFileSettings, source.table(), (), source).passwords
    for name, entry in found.items():
        if entry.scrypt is None:
            raise source.wrong(("passwords", name), "a hash named scrypt", "an entry without one")
        check_entry_name(source, ("passwords", name), name)
    return found


class PasswordCaller(EntryCaller[PasswordSettings]):
    """A person with a password."""

    kind = "password"

    @property
    def entry(self) -> str:
        """See `Caller`."""
        return PASSWORD_ENTRY + self.name


class PasswordAccess:
    """Knows people by the passwords of a file, and programs by their tokens, if there are any.

    clock: seconds of a monotonic clock.
    """

    needs_token = takes_passwords = True

    def __init__(
        self, path: Path | str, tokens: TokenAccess | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = EntryFile(Path(path), read_passwords, PasswordCaller, secret=True, clock=clock)
        self._tokens, self._clock = tokens, clock
        self._tries = SignInTries()
        # Whoever names nobody is answered after the same work as whoever has the wrong password.
        self._nobody = PasswordHash(_COST, _BLOCK, _LANES, secrets.token_bytes(_SALT), secrets.token_bytes(_KEY))

    @property
    def takes_tokens(self) -> bool:
        """Whether there are tokens."""
        return self._tokens is not None

    def caller(self, headers: Mapping[str, str], address: str) -> Caller:
        """The caller with the token of the Authorization header; NotAuthenticated, RateExceeded."""
        if self._tokens is None:
            raise NotAuthenticated("this server has no tokens for programs: set [server] tokens")
        return self._tokens.caller(headers, address)

    def person(self, headers: Mapping[str, str], address: str) -> Caller | None:
        """Nobody: there is no proxy."""
        return None

    def sign_in(self, name: str, password: str, address: str) -> Caller:
        """The person with this password. For one call at a time: then tries cannot overtake the count of failures.
        NotAuthenticated, RateExceeded."""
        self._tries.check(name, address, self._clock())
        found = self._file.find(name)
        kept = None if found is None else found.settings.scrypt
        is_right = (kept or self._nobody).matches(password)
        if found is None or not is_right or len(password.encode("utf-8", "surrogatepass")) > MOST:
            self._tries.note_failure(name, address, self._clock())
            raise NotAuthenticated("the name or the password is wrong")
        self._tries.note_success(name, address)
        return found

    def named(self, entry: str) -> Caller | None:
        """The caller of this entry; None: there is none any more."""
        if entry.startswith(PASSWORD_ENTRY):
            return self._file.find(entry.removeprefix(PASSWORD_ENTRY))
        return None if self._tokens is None else self._tokens.named(entry)

    def digest_of(self, entry: str) -> bytes:
        """What is kept of the password or token of this entry; empty: there is none."""
        if entry.startswith(PASSWORD_ENTRY):
            found = self._file.find(entry.removeprefix(PASSWORD_ENTRY))
            return b"" if found is None else str(found.settings.scrypt).encode()
        return b"" if self._tokens is None else self._tokens.digest_of(entry)


def open_access(tokens: Path | str | None, passwords: Path | str | None) -> DoorAccess:
    """Who may come in, by the files of tokens and passwords. Without either: everybody. ConfigError."""
    by_token = None if tokens is None else TokenAccess(tokens)
    return PasswordAccess(passwords, by_token) if passwords is not None else by_token or OpenAccess()
