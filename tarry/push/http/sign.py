"""Signatures by Standard Webhooks 1.0.0, and the other headers that identify a delivery.

    webhook-id: 019...             the job's, the same at each attempt
    webhook-timestamp: 1763765100  of this attempt, in seconds
    webhook-signature: v1,... v1a,...
    tarry-attempt: 3
    tarry-due: 2026-11-21T23:25:00.000Z
    idempotency-key: "019..."      draft-ietf-httpapi-idempotency-key-header: a quoted string

The signature covers `id.timestamp.body`. Each secret makes one signature, so that a receiver with either the old or the
new secret accepts it while secrets change.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from tarry.errors import ConfigError
from tarry.model.duration import SECOND
from tarry.push.http.response import Headers

SYMMETRIC, PRIVATE, PUBLIC = "whsec_", "whsk_", "whpk_"
MOST_SECRETS = 10

_LEAST, _MOST = 24, 64  # Bytes of a `whsec_` secret, by the specification.
_LEAST_RAW = 16
_SEED = 32  # Bytes of an ed25519 private key.

_Sign = Callable[[bytes], str]


class Signer:
    """Signs with each of its secrets, in their order. Never shows them."""

    def __init__(self, secrets: Sequence[str]) -> None:
        """Each is `whsec_` and base64 of 24 to 64 bytes (HMAC-SHA256); `whsk_` and base64 of an ed25519 key, 32 bytes,
        or 64 with the public half behind; or any other text of 16 characters or more, whose UTF-8 is the HMAC key.
        ConfigError: names the invalid one by its number, without showing it."""
        if len(secrets) > MOST_SECRETS:
            raise ConfigError(f"{len(secrets)} secrets are too many: {MOST_SECRETS} sign at most; remove old ones")
        made = [_make_sign(secret, f"secret {n} of {len(secrets)}") for n, secret in enumerate(secrets, 1)]
        self._signs = [sign for sign, _ in made]
        self.public = tuple(key for _, key in made if key)
        """The `whpk_` keys with which receivers verify ed25519 signatures."""

    def __repr__(self) -> str:
        return f"Signer({len(self._signs)} secrets)"

    def __bool__(self) -> bool:
        return bool(self._signs)

    def signature(self, id: str, timestamp: int, body: bytes) -> str:
        """The value of `webhook-signature`. `id` holds no full stop; `timestamp`: seconds."""
        # Full stops separate the parts. With one in the id, two different deliveries could have the same content.
        content = b"%s.%d.%s" % (id.encode(), timestamp, body)
        return " ".join([sign(content) for sign in self._signs])


def could_be_base64(secret: str) -> bool:
    """Whether libraries of Standard Webhooks would decode it as base64, although it has no `whsec_` prefix."""
    # They would use another key than tarry, which takes the text as it is.
    return (
        len(secret) >= _LEAST_RAW
        and not secret.startswith((SYMMETRIC, PRIVATE, PUBLIC))
        and len(secret) % 4 == 0
        and re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", secret) is not None
    )


def headers(signer: Signer, id: str, attempt: int, due: int, now: float, body: bytes) -> Headers:
    """The headers listed above; without secrets no signature. `attempt` counts from 1; `due`: microseconds since the
    epoch; `now`: seconds since the epoch."""
    timestamp = int(now)
    signed = (("webhook-signature", signer.signature(id, timestamp, body)),) if signer else ()
    return (
        ("webhook-id", id),
        ("webhook-timestamp", str(timestamp)),
        *signed,
        ("tarry-attempt", str(attempt)),
        ("tarry-due", _rfc3339(due)),
        ("idempotency-key", f'"{id}"'),
    )


def _rfc3339(moment: int) -> str:
    return f"{_second(moment // SECOND)}.{moment % SECOND // 1000:03d}Z"


@lru_cache(256)
def _second(moment: int) -> str:
    # Cached: jobs that are sent together were mostly due together.
    return datetime.fromtimestamp(moment, UTC).isoformat()[:19]


def _make_sign(secret: str, name: str) -> tuple[_Sign, str]:
    """The signing function of a secret, and its public key if it has one."""
    if secret.startswith(PRIVATE):
        return _asymmetric(_decode(secret, PRIVATE, name), name)
    if secret.startswith(PUBLIC):
        raise ConfigError(f"{name} is a public key, which cannot sign: write the private one, {PRIVATE}...")
    return _symmetric(_key(secret, name)), ""


def _key(secret: str, name: str) -> bytes:
    if secret.startswith(SYMMETRIC):
        key = _decode(secret, SYMMETRIC, name)
        if not _LEAST <= len(key) <= _MOST:
            raise ConfigError(f"{name} has {len(key)} bytes: {SYMMETRIC} takes base64 of {_LEAST} to {_MOST} of them")
        return key
    if len(secret) < _LEAST_RAW:
        raise ConfigError(f"{name} has {len(secret)} characters: write {_LEAST_RAW} or more, or {SYMMETRIC} and base64")
    return secret.encode()


def _decode(secret: str, prefix: str, name: str) -> bytes:
    # Padding may be missing.
    text = secret.removeprefix(prefix).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{name} is no base64 after {prefix}: copy it again, whole") from None


def _symmetric(key: bytes) -> _Sign:
    # Not hmac.digest: it releases the GIL, which costs a hundred times the work for so few bytes. The key is hashed
    # only once; each signature goes on from a copy.
    begun = hmac.new(key, digestmod="sha256")

    def sign(content: bytes) -> str:
        mac = begun.copy()
        mac.update(content)
        return "v1," + base64.b64encode(mac.digest()).decode()

    return sign


def _asymmetric(key: bytes, name: str) -> tuple[_Sign, str]:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - only for these
    except ImportError:
        raise ConfigError(f"{name}: {PRIVATE} keys need cryptography: pip install 'tarry[push]'") from None
    if len(key) not in (_SEED, 2 * _SEED):
        raise ConfigError(f"{name} has {len(key)} bytes: {PRIVATE} takes base64 of an ed25519 key, 32 or 64 of them")
    private = Ed25519PrivateKey.from_private_bytes(key[:_SEED])
    public = private.public_key().public_bytes_raw()
    if key[_SEED:] not in (b"", public):
        raise ConfigError(f"{name}: its public half does not belong to its private half: copy it again, whole")

    def sign(content: bytes) -> str:
        return "v1a," + base64.b64encode(private.sign(content)).decode()

    return sign, PUBLIC + base64.b64encode(public).decode()
