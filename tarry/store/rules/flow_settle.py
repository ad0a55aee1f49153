"""What the changes of nodes do to their flows: the one rule that every store follows, within the transaction that makes
the changes, after it is known which of them are valid and before the claim of the same call.

The memory store, SQLite and MySQL run this code over `FlowTables`. PostgreSQL has it in SQL (`settle_flows.sql`,
`finish_flow.sql`), and Redis in Lua (`flows.lua`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from tarry.model import flow_rules
from tarry.model.change import Change
from tarry.model.flow.effect import NodeEffect
from tarry.model.flow.node_ids import flow_of
from tarry.model.flow.wiring import Gate
from tarry.model.flow_row import FlowChange, FlowRow, GateRow, Phase
from tarry.model.job import HELD, State
from tarry.store.rules import flows

RELEASING = (Phase.RUNNING, Phase.UNDOING)
"""The phases in which nodes are released."""
_CHANGED = ("ends", "note", "at", "active", "failed", "blocked")


class Settled(Struct, frozen=True, gc=False):
    """What was done to flows."""

    released: int = 0
    """How many nodes were released."""
    more_to_release: bool = False
    """There are more to release."""
    ended: bool = False
    """A flow has ended, so its root has."""

    def plus(self, other: "Settled") -> "Settled":
        """What both did."""
        return Settled(
            self.released + other.released, self.more_to_release or other.more_to_release, self.ended or other.ended
        )


class FlowTables(Protocol):
    """The rows of flows in a store, within its transaction."""

    def lock(self, ids: Collection[bytes]) -> dict[bytes, FlowRow]:
        """The rows of these flows that there are, locked in the order of ids."""

    def save(self, flows: Iterable[FlowRow]) -> None:
        """Writes rows that are there already."""

    def gates(self, firsts: Mapping[bytes, Collection[int]]) -> list[GateRow]:
        """The rows of these gates, by flow and index of the first node, that there are."""

    def told_gates(self, flow: bytes) -> list[GateRow]:
        """The gates of a flow that wait for nothing more, whether they are open or held, by index."""

    def open_gates(self, flow: bytes, most: int) -> list[GateRow]:
        """The first gates of a flow that have nodes to release, by index."""

    def save_gates(self, gates: Iterable[GateRow]) -> None:
        """Writes rows, whether they are there or not."""

    def drop_gates(self, gates: Iterable[GateRow]) -> None:
        """Deletes rows."""

    def release(self, flow: bytes, first: int, count: int, now: int) -> int:
        """Makes those of the nodes from `first` to before `first + count` that are blocked ready or scheduled
        (`lifecycle.release`), with the lanes that they have now; returns how many."""

    def end_root(self, flow: bytes, state: State, note: bytes, now: int) -> None:
        """Ends the root of a flow: it gives up its key, and is kept until the flow goes (HELD). Nothing if it is
        gone, or has ended."""


class GateSum(Struct, frozen=True, gc=False):
    """What effects do to one gate."""

    gate: Gate
    raised: int
    """For how many ends more it waits."""
    told: int
    """How many ends it is told."""


class EffectSum(Struct, frozen=True, gc=False):
    """The effects of several changes on one flow, as those of `NodeEffect`."""

    active: int
    blocked: int
    failed: int
    armed: int
    revives: bool
    note: bytes
    gates: Sequence[GateSum]
    """By the first node."""
    opens: Sequence[Gate]


def add_up(effects: Sequence[NodeEffect]) -> EffectSum:
    """The sum of effects on one flow."""
    raises = [raised for effect in effects for raised in effect.raises]
    tells = [gate for effect in effects for gate in effect.tells]
    gates, raised, told = dict[int, Gate](), Counter[int](), Counter[int]()
    # By its first node only: nodes that were added at run time count its parents otherwise.
    for gate, more in raises:
        gates.setdefault(gate.first, gate)
        raised[gate.first] += more
    for gate in tells:
        gates.setdefault(gate.first, gate)
        told[gate.first] += 1
    return EffectSum(
        sum(effect.active for effect in effects),
        sum(effect.blocked for effect in effects),
        sum(effect.failed for effect in effects),
        sum(effect.armed for effect in effects),
        any(effect.revives for effect in effects),
        # The first failure is the one to show: those behind it may be its consequence.
        next((effect.note for effect in effects if effect.note), b""),
        [GateSum(gate, raised[first], told[first]) for first, gate in sorted(gates.items())],
        [gate for effect in effects for gate in effect.opens],
    )


def effects_by_flow(changes: Iterable[Change]) -> dict[bytes, list[NodeEffect]]:
    """What the changes do to flows."""
    effects: dict[bytes, list[NodeEffect]] = {}
    for change in changes:
        if change.node is not None:
            effects.setdefault(flow_of(change.id), []).append(change.node)
    return effects


def settle(tables: FlowTables, changes: Iterable[Change], now: int) -> Settled:
    """Does what these changes, which were all made, do to their flows. Releases up to RELEASED_AT_ONCE nodes."""
    effects = effects_by_flow(changes)
    settled = Settled()
    for id, row in sorted(tables.lock(effects).items() if effects else ()):
        one = FlowSettling(tables, row, now, flows.RELEASED_AT_ONCE - settled.released)
        one.add(effects[id])
        settled = settled.plus(one.finish())
    return settled


def change_flow(tables: FlowTables, change: FlowChange, now: int) -> Settled | None:
    """Makes a change of a flow. None: it is not valid, and nothing is done."""
    row = tables.lock((change.id,)).get(change.id)
    seen = row and (row.active, row.blocked, row.failed)
    if row is None or row.phase is not change.was or change.seen not in (None, seen):
        return None
    new = {name: value for name in _CHANGED if (value := getattr(change, name)) is not None}
    one = FlowSettling(tables, row, now, flows.RELEASED_AT_ONCE)
    one.row = replace(row, phase=change.to, **new)
    if change.to is Phase.CANCELLING:
        one.close_gates()
    return one.finish()


def release_flow(tables: FlowTables, flow: bytes, now: int, most: int) -> Settled:
    """Releases up to `most` nodes of a flow of which a gate was seen open."""
    row = tables.lock((flow,)).get(flow)
    if row is None or row.phase not in RELEASING:
        return Settled()
    one = FlowSettling(tables, row, now, most)
    one.opened = _enough(tables.open_gates(flow, most), most)
    # Another process may have been here first.
    return one.finish() if one.opened else Settled()


def _enough(gates: Iterable[GateRow], most: int) -> list[GateRow]:
    """The first of these gates that have so many nodes to release."""
    found, left = list[GateRow](), most
    for gate in gates:
        if left <= 0:
            break
        found.append(gate)
        left -= gate.first + gate.count - gate.next
    return found


def end_flow(tables: FlowTables, row: FlowRow, now: int, keep: int | None = None) -> FlowRow:
    """Ends a flow whose row is locked; the row as it is then, which is saved. keep: how long it is kept; None: as it
    says itself."""
    state, note = flow_rules.flow_end(row)
    tables.end_root(row.id, state, note, now)
    kept = flow_rules.keep(row, state) if keep is None else keep
    ended = replace(row, phase=Phase.ENDED, ends=state, at=now + kept, note=note)
    tables.save((ended,))
    return ended


class FlowSettling:
    """One flow, locked, while changes are made to it. most: how many nodes may be released."""

    def __init__(self, tables: FlowTables, row: FlowRow, now: int, most: int) -> None:
        self.row = row
        self.opened: list[GateRow] = []
        """Gates with nodes to release; `next` says from where on."""
        self._without_row = set[int]()
        """Those of them that have no row, by the first node."""
        self._tables, self._now, self._most = tables, now, most
        self._was_moving = _is_moving(row)

    def add(self, effects: Sequence[NodeEffect]) -> None:
        """Adds the effects of changes that were made."""
        row, summed = self.row, add_up(effects)
        self.row = replace(
            row,
            active=row.active + summed.active,
            blocked=row.blocked + summed.blocked,
            failed=max(0, row.failed + summed.failed),
            armed=max(0, row.armed + summed.armed),
            note=row.note or summed.note,
        )
        if summed.revives:
            self.row = replace(self.row, phase=Phase.RUNNING, at=HELD)
        rows = self._rows({one.gate.first for one in summed.gates if one.gate.parents > 1 or one.raised})
        for one in summed.gates:
            self._count(one.gate, rows.get(one.gate.first), one.raised, one.told)
        for gate in summed.opens:
            self._open(GateRow(self.row.id, gate.first, gate.count, 0), has_row=False)

    def _rows(self, firsts: Collection[int]) -> dict[int, GateRow]:
        return {gate.first: gate for gate in self._tables.gates({self.row.id: firsts})} if firsts else {}

    def _count(self, gate: Gate, row: GateRow | None, raised: int, told: int) -> None:
        if row is None and gate.parents > 1 and not raised:
            # Its row is gone: the audit finds the nodes behind it.
            return
        if row is not None and not row.waits:
            return
        waits = (gate.parents if row is None else row.waits) + raised - told
        counted = GateRow(self.row.id, gate.first, gate.count, max(0, waits))
        if not counted.waits:
            self._open(counted, row is not None)
        elif row is not None or raised:
            self._tables.save_gates((counted,))

    def _open(self, gate: GateRow, has_row: bool = True) -> None:
        if _is_moving(self.row):
            self._without_row |= set() if has_row else {gate.first}
            self.opened.append(replace(gate, next=gate.first))
            self.row = replace(self.row, blocked=self.row.blocked - gate.count, active=self.row.active + gate.count)
        else:
            # Held: it opens if what failed is tried again.
            self._tables.save_gates((gate,))

    def close_gates(self) -> None:
        """Holds what is left to release of the gates that are open."""
        for gate in self._tables.told_gates(self.row.id):
            if gate.next >= 0:
                left = gate.first + gate.count - gate.next
                self._tables.drop_gates((gate,))
                self._tables.save_gates((replace(gate, first=gate.next, count=left, next=-1),))
                self.row = replace(self.row, active=self.row.active - left, blocked=self.row.blocked + left)

    def finish(self) -> Settled:
        """Releases what may be, ends the flow if nothing is active, and writes its row."""
        if _is_moving(self.row) and not self._was_moving:
            for gate in self._tables.told_gates(self.row.id):
                if gate.next < 0:
                    self._open(gate)
        if self.row.phase is Phase.RUNNING:
            if self.row.failed == 0:
                self.row = replace(self.row, ends=State.DONE, note=b"", armed=0)
            else:
                self.row = replace(self.row, ends=State.DEAD)
        released, more_to_release = self._release()
        if self.row.active <= 0 and self.row.phase not in (Phase.STORING, Phase.ENDED):
            return Settled(released, more_to_release, not self._undo_or_end())
        self._tables.save((self.row,))
        return Settled(released, more_to_release)

    def _release(self) -> tuple[int, bool]:
        total, more_to_release = 0, False
        for gate in self.opened:
            count = min(gate.first + gate.count - gate.next, self._most - total)
            if count:
                total += self._release_some(gate.next, count)
            after = gate.next + count
            if after < gate.first + gate.count:
                more_to_release = True
                self._tables.save_gates((replace(gate, next=after),))
            elif gate.first not in self._without_row:
                self._tables.drop_gates((gate,))
        return total, more_to_release

    def _release_some(self, first: int, count: int) -> int:
        """Releases nodes; those that are gone count as failed."""
        released = self._tables.release(self.row.id, first, count, self._now)
        if missing := count - released:
            row = self.row
            self.row = replace(row, active=row.active - missing, failed=row.failed + missing)
            self.row = replace(self.row, note=row.note or flow_rules.lost(missing))
            if row.phase is Phase.RUNNING:
                self.row = replace(self.row, ends=State.DEAD)
        return count

    def _undo_or_end(self) -> bool:
        """Starts the node that undoes the others, if that is asked for and not done yet, and returns True; else ends
        the flow."""
        row = self.row
        if row.phase is Phase.RUNNING and row.armed and row.undo > 0:
            self.row = replace(row, phase=Phase.UNDOING, active=1, undo=-row.undo)
            if self._tables.release(row.id, row.undo, 1, self._now):
                self._tables.save((self.row,))
                return True
            self.row = row
        self.row = end_flow(self._tables, self.row, self._now)
        return False


def _is_moving(row: FlowRow) -> bool:
    """Whether gates of the flow open."""
    return row.phase is Phase.UNDOING or (row.phase is Phase.RUNNING and row.failed == 0)
