"""What stands in a job in place of arguments or of a result that are kept outside of its store.

`unreadable.is_apart` tells such a value from all others. `store/payloads` writes and reads what it refers to.
"""

import re
from secrets import token_hex
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.unreadable import APART, UNREADABLE, is_apart
from tarry.model.quantity import LARGEST_PAYLOAD, MAX_SHORT, format_size

ARGUMENTS, RESULT = "arguments", "result"
_MOST_STORED = 2 * LARGEST_PAYLOAD  # sealed, it is larger by a third
_NAME = re.compile(r"([0-9a-f]{32})/([0-9a-f]{2})/([0-9a-f]{30}\2)-(arguments|result)-[0-9a-f]{32}")


class PayloadReference(Struct, frozen=True, array_like=True, gc=False):
    """Where a payload is, and what it has to be."""

    name: Annotated[str, Meta(max_length=2 * MAX_SHORT)]
    """Of the object, see `new_name`."""
    size: Annotated[int, Meta(ge=0, le=_MOST_STORED)]
    digest: Annotated[str, Meta(max_length=MAX_SHORT)]
    """blake2b of the bytes, 16 bytes in hexadecimal."""
    place: Annotated[str, Meta(max_length=1000)]
    """The place as the settings of whoever wrote it named it: for people, nothing is opened by it."""


_reference = json_decoder(PayloadReference)


def reference_to(name: str, size: int, digest: str, place: str) -> bytes:
    """The value that stands for an object."""
    return APART + msgspec.json.encode(PayloadReference(name, size, digest, place)) + b"}"


def read_reference(value: bytes, id: bytes, field: str) -> PayloadReference | None:
    """The reference in a value that `is_apart`; None if it is not one to this field of this job, as tarry writes it."""
    found = _decode(value)
    return found if found and parse_name(found.name)[1:] == (id, field) else None


def new_name(namespace: str, id: bytes, field: str) -> str:
    """The name of a new object: of nothing that a stranger could choose. Folders by the last byte of the id, so that
    none gets large."""
    return f"{namespace}/{id[-1]:02x}/{id.hex()}-{field}-{token_hex(16)}"


def parse_name(name: str) -> tuple[str, bytes, str]:
    """Namespace, job and field of the name of an object; empty ones if it is not as `new_name` makes them."""
    found = _NAME.fullmatch(name)
    return (found[1], bytes.fromhex(found[3]), found[4]) if found else ("", b"", "")


def full_size(value: bytes) -> int:
    """How many bytes a value has, also where it stands for one that is kept elsewhere."""
    found = _decode(value) if is_apart(value) else None
    return found.size if found else len(value)


def describe_apart(value: bytes) -> str:
    """What people read in place of such a value: `64.0 MB at file:///srv/tarry`."""
    found = _decode(value)
    if found is None or not found.place.isprintable():
        return "kept outside of the store, in a form that this version does not know"
    return f"{format_size(found.size)} at {found.place}"


def _decode(value: bytes) -> PayloadReference | None:
    try:
        return _reference.decode(value[len(APART) : -1])
    except UNREADABLE:
        return None
