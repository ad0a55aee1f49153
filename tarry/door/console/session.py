"""Who is signed in. A session is a cookie that names a token or a password and proves that its holder had it.

    name . end . proof        proof = HMAC(key, name . end)        key = HMAC(secret of the store, what is kept of it)

So every server process knows every session, and none has to keep them; a session ends with its token or password, and
whoever reads their files cannot make one.
"""

import hmac
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256

from tarry.door.identity.access import Caller, DoorAccess
from tarry.errors import StoreBusy
from tarry.store.base import Store

COOKIE = "tarry_session"
LASTS = 12 * 3600
"""Seconds that a session lasts."""
SECRET_CELL = "console/secret"
"""The store's secret, made at the first sign-in."""
_TRIES = 5


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
        claim = f"{urlsafe_b64encode(entry.encode()).decode()}.{int(self._clock()) + LASTS}"
        return f"{claim}.{self._prove(claim, self._key(entry))}"

    def caller(self, cookie: str) -> Caller | None:
        """Whose session it is; None: it is none, is over, or what it was opened with is gone."""
        claim, _, proof = cookie.rpartition(".")
        written, _, end = claim.partition(".")
        try:
            entry = urlsafe_b64decode(written).decode()
            is_over = int(end) <= self._clock()
        except ValueError:
            return None
        found = self._access.named(entry)
        if found is None or is_over:
            return None
        # As bytes: a cookie may hold any characters, and only ASCII text is compared.
        wanted = self._prove(claim, self._key(entry))
        return found if hmac.compare_digest(proof.encode(), wanted.encode()) else None

    def form_proof(self, cookie: str) -> str:
        """What each form of this session carries: a page of another site cannot know it. cookie: empty without
        tokens."""
        return self._prove(f"form.{cookie}", self._secret)

    def _key(self, entry: str) -> bytes:
        return hmac.digest(self._secret, self._access.digest_of(entry), sha256)

    @staticmethod
    def _prove(text: str, key: bytes) -> str:
        return hmac.digest(key, text.encode(), sha256).hex()
