"""Who is signed in. A session is a cookie that names a token or a password and proves that its holder had it.

    name . id . end . proof
    proof = HMAC(key, name . id . end)        key = HMAC(secret of the store, what is kept of the token or password)

So every server process knows every session, and none has to keep them; a session ends with its token or password, and
whoever reads their files cannot make one. Of those that somebody has signed out of, the store keeps the ids.
"""

import hmac
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import blake2b, sha256

import msgspec
from msgspec import Struct

from tarry.errors import StoreBusy
from tarry.model.checks.decoders import decode_json
from tarry.operate.access import Caller
from tarry.server.identity.access import DoorAccess
from tarry.store.rules.base import Store
from tarry.store.rules.cell import change_cell
from tarry.store.rules.partial_result import reachable_part

COOKIE = "tarry_session"
LASTS = 12 * 3600
"""Seconds that a session lasts."""
SECRET_CELL = "console/secret"
"""The store's secret, made at the first sign-in."""
ENDED_CELL = "console/ended/"
"""Of each token or password whose sessions somebody has signed out of: an EndedSessions."""
MOST_ENDED = 50
"""Sessions of one token or password that are kept one by one."""
_TRIES = 5


class ConsoleSession(Struct, frozen=True):
    """A session. entry: of the caller who opened it. end: seconds since the epoch."""

    entry: str
    id: str
    end: int


class EndedSessions(Struct, frozen=True, omit_defaults=True):
    """The sessions of one token or password that were signed out of. ids: each with its end, in seconds since the
    epoch. until: all with this end or an earlier one, in place of more ids than are kept."""

    ids: dict[str, int] = {}
    until: int = 0

    def has(self, session: ConsoleSession) -> bool:
        """Whether the session was signed out of."""
        return session.id in self.ids or session.end <= self.until

    def with_session(self, session: ConsoleSession, now: float) -> "EndedSessions":
        """The same and this one; without those that are over anyway."""
        ids = {id: end for id, end in self.ids.items() if end > now} | {session.id: session.end}
        # Those who have come in since then stay in; the earlier ones have to sign in once more.
        return EndedSessions(ids, self.until) if len(ids) <= MOST_ENDED else EndedSessions({}, max(ids.values()))


def read_ended(store: Store, entry: str) -> EndedSessions:
    """The sessions of this token or password that were signed out of. StoreError."""
    return _decode(reachable_part(lambda: store.kv_get(_ended_cell(entry))))


def end_session(store: Store, session: ConsoleSession, now: float) -> None:
    """Ends the session, for all server processes. now: seconds since the epoch. StoreError."""
    change_cell(
        store, _ended_cell(session.entry), lambda cell: msgspec.json.encode(_decode(cell).with_session(session, now))
    )


def _decode(cell: bytes | None) -> EndedSessions:
    try:
        return EndedSessions() if cell is None else decode_json(cell, EndedSessions)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return EndedSessions()


def _ended_cell(entry: str) -> str:
    # A name may be longer than that of a cell.
    return ENDED_CELL + blake2b(entry.encode(), digest_size=16).hexdigest()


def read_secret(store: Store) -> bytes:
    """The secret of the store; makes it if there is none. StoreError."""
    for _ in range(_TRIES):
        if (secret := store.kv_get(SECRET_CELL)) is not None:
            return secret
        store.kv_cas(SECRET_CELL, secrets.token_bytes(32), None)
    raise StoreBusy("the secret of the console cannot be stored: try again")


class Sessions:
    """Makes and checks sessions. secret: of the store. clock: seconds since the epoch."""

    def __init__(self, access: DoorAccess, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        self._access, self._secret, self._clock = access, secret, clock

    def open(self, entry: str) -> str:
        """The cookie of a new session for the holder of this token or password: the `entry` of a caller."""
        name, id = urlsafe_b64encode(entry.encode()).decode(), secrets.token_hex(8)
        claim = f"{name}.{id}.{int(self._clock()) + LASTS}"
        return f"{claim}.{self._prove(claim, self._key(entry))}"

    def read(self, cookie: str) -> ConsoleSession | None:
        """The session; None: it is none, is over, or what it was opened with is gone. Whether somebody has signed out
        of it, only the store knows: `read_ended`."""
        claim, _, proof = cookie.rpartition(".")
        try:
            written, id, end = claim.split(".")
            session = ConsoleSession(urlsafe_b64decode(written).decode(), id, int(end))
        except ValueError:
            return None
        if session.end <= self._clock() or self._access.named(session.entry) is None:
            return None
        # As bytes: a cookie may hold any characters, and only ASCII text is compared.
        wanted = self._prove(claim, self._key(session.entry))
        return session if hmac.compare_digest(proof.encode(), wanted.encode()) else None

    def caller(self, session: ConsoleSession) -> Caller | None:
        """Whose session it is; None: what it was opened with is gone."""
        return self._access.named(session.entry)

    def form_proof(self, cookie: str) -> str:
        """What each form of this session carries: a page of another site cannot know it. cookie: empty without
        tokens."""
        return self._prove(f"form.{cookie}", self._secret)

    def person_proof(self, entry: str) -> str:
        """The same of somebody whom a proxy has signed in, and who has no session here."""
        return self._prove(f"person.{entry}", self._secret)

    def _key(self, entry: str) -> bytes:
        return hmac.digest(self._secret, self._access.digest_of(entry), sha256)

    @staticmethod
    def _prove(text: str, key: bytes) -> str:
        return hmac.digest(key, text.encode(), sha256).hex()
