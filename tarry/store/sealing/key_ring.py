"""The keys of `[encryption]`: the first seals, all open.

AES-256-GCM. Each job has a key of its own, derived from that of the settings, so that random nonces never repeat under
one key, however many jobs there are. Job and field are part of what is authenticated: a value that was moved to another
job or field does not open.
"""

import binascii
import os
from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tarry.config.kinds import read_place
from tarry.errors import ConfigError
from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.unreadable import ALTERED

KEY_BYTES, _NONCE_BYTES = 32, 12
# Of msgspec, whose base64 is three times as fast as Python's.
_encode, _decode = msgspec.json.Encoder().encode, json_decoder(bytes).decode
_HOW = "make one with `openssl rand -base64 32`"


class KeyRing:
    """keys: 32 bytes each."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = {key_id(key): key for key in keys}
        self._first = key_id(keys[0])

    @property
    def names(self) -> list[str]:
        """The ids of the keys, that of the one that seals first."""
        return list(self._keys)

    def seal(self, id: bytes, field: bytes, value: bytes) -> str:
        """The token of a value. id: of the job or whatever else has the field."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = _cipher(self._keys[self._first], id).encrypt(nonce, value, field + id)
        return f"{self._first}.{_encode(nonce + sealed)[1:-1].decode()}"

    def open(self, id: bytes, field: bytes, token: str) -> bytes | str:
        """The value of a token; the token that is to stand in its place, if it cannot be opened."""
        name, _, text = token.partition(".")
        key = self._keys.get(name.removesuffix(ALTERED))
        if key is None:
            return token
        try:
            sealed = _decode(f'"{text}"')
            return _cipher(key, id).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], field + id)
        except (InvalidTag, ValueError):
            return f"{name.removesuffix(ALTERED)}{ALTERED}.{text}"


def key_id(key: bytes) -> str:
    """What a key is called in the clear: nothing of the key follows from it."""
    return blake2b(key, digest_size=4, person=b"tarry key id").hexdigest()


def read_keys(places: Sequence[str]) -> KeyRing:
    """The keys in these places (`env:NAME`, `file:PATH`); ConfigError for the first that is none."""
    return KeyRing([_read_key(place) for place in places])


def _read_key(place: str) -> bytes:
    try:
        text = read_place(place)
    except ConfigError as error:
        raise ConfigError(f"[encryption] keys: {error}; {_HOW}") from None
    try:
        key = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise ConfigError(f"[encryption] keys: {place}: a key is {KEY_BYTES} bytes in base64; {_HOW}") from None
    if len(key) != KEY_BYTES:
        raise ConfigError(f"[encryption] keys: {place}: a key has {KEY_BYTES} bytes, not {len(key)}; {_HOW}")
    return key


def _cipher(key: bytes, id: bytes) -> AESGCM:
    return AESGCM(blake2b(id, key=key, digest_size=KEY_BYTES, person=b"tarry job key").digest())
