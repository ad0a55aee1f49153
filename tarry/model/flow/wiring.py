"""The envelope of a node's body: whom it tells when it ends, and what it takes from others.

A body is the byte 1, the size of the wiring as a varint, the wiring as a MessagePack array, and the arguments as JSON.
The body of a plain job has no envelope: no JSON begins with the byte 1.
"""

from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tarry.model.checks.decoders import json_decoder, msgpack_decoder
from tarry.model.flow.node_ids import MAX_NODES, is_node

STOP, GO_ON, COMPENSATE = range(3)
"""What follows when a node does not end well; `model/flow/rules.py` has the rule."""

AFTER = ""
"""The place of a result that is no argument: the node only comes after that one."""

MARK = b"\x01"
"""The first byte of an envelope."""


# Another program may have written a body: a store would count through a gate of any size.
NodeIndex = Annotated[int, Meta(ge=0, le=MAX_NODES)]
"""The index of a node, or how many nodes."""


class Gate(Struct, frozen=True, array_like=True, gc=False):
    """Nodes that wait for the same parents: those with the indices from `first` to before `first + count`."""

    first: NodeIndex
    count: NodeIndex
    parents: NodeIndex
    """How many ends it waits for. A gate with one needs no row in the store."""


class Ref(Struct, frozen=True, array_like=True, gc=False):
    """The result of the node with the index `first`; with a count, the list of the results of so many from there on."""

    first: NodeIndex
    count: Annotated[int, Meta(ge=-MAX_NODES, le=MAX_NODES)] = 0
    """0: one result, and not a list. Negative: the results of so many are lists, which are joined into one."""

    @property
    def nodes(self) -> range:
        """The indices of its nodes."""
        return range(self.first, self.first + max(1, abs(self.count)))


class Take(Struct, frozen=True, array_like=True, gc=False):
    """An argument that is a result. In the arguments `null` stands in its place."""

    place: int | str
    """Its position, or its name. AFTER: it is no argument, and the task may read it while it runs."""
    ref: Ref


class NodeLinks(Struct, frozen=True, array_like=True):
    """How a node is tied to the others of its flow."""

    tells: tuple[Gate, ...] = ()
    takes: tuple[Take, ...] = ()
    on_failure: int = STOP
    """STOP, GO_ON or COMPENSATE."""
    label: str = ""
    """What people see; empty: the name of the task."""
    undo: tuple[str, str, bytes] | None = None
    """Task, queue and body of what undoes it."""
    alone: bool = False
    """A person runs it again after it has told: its end counts nothing and tells nobody."""


MAP_TASK = "tarry.map:"
"""What the task of a part of a map begins with; the name of the task that it calls for many items follows."""
UNDO_TASK = "tarry.flow.undo"
"""The task of the node that undoes the others. It is released once nothing of the failed flow is active any more."""

_PLAIN = NodeLinks()
# No encoder begins with a space, so no task can return this by itself.
_ADDED = b' {"tarry-nodes":'
_encoder = msgspec.msgpack.Encoder()
_decoder = msgpack_decoder(NodeLinks)
_numbers = json_decoder(tuple[NodeIndex, NodeIndex, NodeIndex])


def wrap(wiring: NodeLinks, arguments: bytes) -> bytes:
    """The body of a node."""
    packed = _encode_links(wiring)
    return b"".join((MARK, _varint(len(packed)), packed, arguments))


def unwrap(body: bytes) -> tuple[NodeLinks | None, bytes]:
    """The wiring and the arguments of a body. Without an envelope: None and the body. ValueError: it cannot be read."""
    if body[:1] != MARK:
        return None, body
    start, end = _bounds(body)
    return _decode_links(body[start:end]), body[end:]


def arguments(body: bytes) -> bytes:
    """The arguments of a body, with or without an envelope. ValueError as `unwrap`."""
    return body[_bounds(body)[1] :] if body[:1] == MARK else body


def split(id: bytes, body: bytes) -> tuple[bytes, bytes]:
    """The envelope and the arguments of any job, for whoever shows or passes them on. Without an envelope: empty, and
    the body; also if it cannot be read."""
    # Other programs put any bytes: only a node's can be an envelope.
    if not is_node(id) or body[:1] != MARK:
        return b"", body
    try:
        end = _bounds(body)[1]
    except ValueError:
        return b"", body
    return body[:end], body[end:]


def added_result(first: int, count: int, opened: int = 0) -> bytes:
    """The result of a node that has added these nodes to its flow: it stands for the list of theirs. opened: how many
    of them its end releases, if not all; the others wait for each other."""
    return _ADDED + b"[%d,%d,%d]}" % (first, count, opened or count)


def added_nodes(result: bytes) -> Ref | None:
    """The nodes for whose results such a result stands; None: it is a result of its own."""
    if not result.startswith(_ADDED):
        return None
    return Ref(*_numbers.decode(result[len(_ADDED) : -1])[:2])


def opened_by(result: bytes) -> int:
    """How many of the nodes that a node has added its end releases."""
    return _numbers.decode(result[len(_ADDED) : -1])[2]


# The members of a group have the same one, and each is asked for at its start and at its end.
@lru_cache(maxsize=1000)
def _decode_links(packed: bytes) -> NodeLinks:
    return _decoder.decode(packed)


def _bounds(body: bytes) -> tuple[int, int]:
    """Where the wiring begins and ends."""
    # Nearly all are so short.
    if len(body) > 1 and body[1] < 0x80 and len(body) >= 2 + body[1]:
        return 2, 2 + body[1]
    size = shift = 0
    for at, byte in enumerate(body[1:6], 2):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 and at + size <= len(body):
            return at, at + size
    raise ValueError("the envelope of this node's body is broken")


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))


def _encode_links(wiring: NodeLinks) -> bytes:
    """As MessagePack, without the default values at the end: most nodes only tell."""
    values = [getattr(wiring, name) for name in NodeLinks.__struct_fields__]
    while values and values[-1] == getattr(_PLAIN, NodeLinks.__struct_fields__[len(values) - 1]):
        values.pop()
    return _encoder.encode(values)
