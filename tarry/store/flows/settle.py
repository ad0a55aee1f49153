"""What the changes of nodes do to their flows: the one rule that every store follows, within the transaction that makes
the changes, after it is known which of them are valid and before the claim of the same call.

The memory store, SQLite and MySQL run this code over `FlowTables`. PostgreSQL and Redis have it in SQL and Lua.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from tarry.model.flow.flow import FlowRow, GateRow
from tarry.model.job import State


class Settled(Struct, frozen=True, gc=False):
    """What was done to flows."""

    released: int = 0
    """How many nodes were released."""
    tend: bool = False
    """There are more to release."""
    ended: bool = False
    """A flow has ended, so its root has."""


class FlowTables(Protocol):
    """The rows of flows in a store, within its transaction."""

    def lock(self, ids: Collection[bytes]) -> dict[bytes, FlowRow]:
        """The rows of these flows that there are, locked in the order of ids."""

    def save(self, flows: Iterable[FlowRow]) -> None:
        """Writes rows that are there already."""

    def gates(self, firsts: Mapping[bytes, Collection[int]]) -> list[GateRow]:
        """The rows of these gates, by flow and index of the first node, that there are."""

    def held_gates(self, flow: bytes) -> list[GateRow]:
        """The gates of a flow that wait for nothing and are not open, by index."""

    def save_gates(self, gates: Iterable[GateRow]) -> None:
        """Writes rows, whether they are there or not."""

    def drop_gates(self, gates: Iterable[GateRow]) -> None:
        """Deletes rows, whether they are there or not."""

    def release(self, flow: bytes, first: int, count: int, now: int) -> int:
        """Makes those of the nodes from `first` to before `first + count` that are blocked ready or scheduled
        (`lifecycle.release`), with the lanes that they have now; returns how many."""

    def end_root(self, flow: bytes, state: State, note: bytes, now: int) -> None:
        """Ends the root of a flow: it gives up its key, and is kept until the flow goes (HELD). Nothing if it is
        gone, or has ended."""
