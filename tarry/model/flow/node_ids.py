"""The ids of nodes: an id says that the job is a node, of which flow, and which of its nodes.

They are UUIDs of version 8 (RFC 9562): 12 bytes of the flow, then the index of the node in 4 bytes. So a flow is one
range of ids. They sort by time as the other ids do. The root has the index 0; its id is the id of the flow.
"""

MAX_NODES = 1_000_000
"""The most indices that a flow gives out, with that of the root."""


def flow_id(milliseconds: int, draw: int) -> bytes:
    """An id for a new flow. milliseconds: since the epoch, 48 bits; draw: 42 random bits."""
    value = milliseconds << 80 | 0x8 << 76 | draw >> 30 << 64 | 0b10 << 62 | (draw & (1 << 30) - 1) << 32
    return value.to_bytes(16, "big")


def is_node(id: bytes) -> bool:
    """Whether the job is a node of a flow, or a root."""
    return b"\x80" <= id[6:7] < b"\x90"


def is_root(id: bytes) -> bool:
    """Whether the job is the root of a flow."""
    return is_node(id) and id.endswith(bytes(4))


def flow_of(id: bytes) -> bytes:
    """The flow of a node."""
    return id[:12] + bytes(4)


def node_id(flow: bytes, index: int) -> bytes:
    """The id of the node with that index."""
    return flow[:12] + index.to_bytes(4, "big")


def index_of(id: bytes) -> int:
    """The index of a node in its flow."""
    return int.from_bytes(id[12:], "big")
