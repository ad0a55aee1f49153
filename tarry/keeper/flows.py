"""What flows need besides workers: what is left over is done, deadlines come, and no flow waits for nobody."""

import logging
from collections.abc import Callable

from msgspec import Struct

from tarry.client.clock import Clock
from tarry.model import flow_rules
from tarry.model.duration import MINUTE, SECOND
from tarry.model.flow.node_ids import index_of
from tarry.model.flow_row import FlowRow, Phase
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.rules.flow_operating import ACTIVE, cancel_nodes
from tarry.store.rules.flows import FLOW_TASK, FlowQuery

log = logging.getLogger("tarry.keeper")

# Bounded, so that the other chores get their turn.
_PIECES = 20
"""How many parts of one kind of work are done in a call."""
AUDIT_EVERY = 60.0
"""Seconds."""
_AUDIT_HOLD = 70 * SECOND
_AUDITED = 100
"""How many flows are looked at in a call."""
# To count nodes is dear, and most flows whose numbers stand still only have a node that runs for long.
_COUNTED_EVERY = 10 * MINUTE
_PAGE = 1000
_UNFINISHED = (Phase.RUNNING, Phase.CANCELLING, Phase.UNDOING)


class _LastSeen(Struct, frozen=True):
    """A flow at the last audit."""

    numbers: tuple[int, int, int]
    counted: int
    """When its nodes were counted; 0: not since its numbers changed."""


class FlowChores:
    """For one keeper. name: that of the keeper, for its hold."""

    def __init__(self, store: Store, clock: Clock, name: str) -> None:
        self._store, self._flows, self._clock, self._name = store, store.flows, clock, name
        self._after = b""
        """The last flow of the page that was audited; empty: the next audit begins with the newest."""
        self._seen: dict[bytes, _LastSeen] = {}
        """All unfinished flows, as they were in the round before this one."""
        self._round: dict[bytes, _LastSeen] = {}
        """Those that were looked at in this round, which takes as many audits as there are pages."""

    def release_more(self) -> bool:
        """Releases what workers left over. Each host tries; the first one does a piece. False: little or nothing was
        left."""
        now = self._clock.now()
        return _has_pieces(lambda: self._flows.release_more(now))

    # Not together with the above: while large flows are released, old ones would stay.
    def tidy_flows(self) -> bool:
        """Deletes flows and signals that were kept long enough. False: there were few or none."""
        now = self._clock.now()
        return _has_pieces(lambda: self._flows.tidy(now))

    def end_late_flows(self) -> None:
        """Cancels what is left of flows whose deadline has come."""
        # Without a hold: a change of a flow is fenced, so the second of two keepers does nothing.
        now = self._clock.now()
        for late in self._flows.find(FlowQuery(phases=(Phase.RUNNING,), at_before=now + 1)):
            if self._flows.change(flow_rules.time_out(late), now):
                log.warning("flow %s: it did not end before its deadline; its jobs are cancelled", _name_of(late))
                cancel_nodes(self._store, late.id, now)

    def resume_cancels(self) -> bool:
        """Goes on with cancellations, which may have broken off. False: there are none."""
        rows = self._flows.find(FlowQuery(phases=(Phase.CANCELLING,)))
        for row in rows:
            cancel_nodes(self._store, row.id, self._clock.now())
        return bool(rows)

    def audit_flows(self) -> None:
        """Finds flows that nothing would ever wake, and lets them go on or end. One host does it for all."""
        now = self._clock.now()
        if not self._store.hold("flows", self._name, now + _AUDIT_HOLD, now):
            self._seen.clear()
            return
        # What is open and not released yet would count as missing.
        if self._flows.release_more(now):
            return
        rows = self._flows.find(FlowQuery(phases=_UNFINISHED, before=self._after, limit=_AUDITED))
        for row in rows:
            self._round[row.id] = self._audit(row, self._seen.get(row.id), now)
        self._after = rows[-1].id if len(rows) == _AUDITED else b""
        if not self._after:
            self._seen, self._round = self._round, {}

    def _audit(self, row: FlowRow, last: _LastSeen | None, now: int) -> _LastSeen:
        numbers = row.active, row.blocked, row.failed
        if last is None or last.numbers != numbers:
            return _LastSeen(numbers, 0)
        if last.counted + _COUNTED_EVERY > now:
            return last
        change = flow_rules.repair(row, self._count(row))
        if change is not None and self._flows.change(change, now):
            log.warning(
                "flow %s: nothing would have woken it: %d of its jobs were to be active, and %d are",
                _name_of(row), row.active, change.active,
            )  # fmt: skip
        return _LastSeen(numbers, now)

    def _count(self, row: FlowRow) -> flow_rules.CountedNodes:
        active = failed = found = after = 0
        # Bounded by the size of a flow.
        while page := self._flows.nodes(row.id, after, _PAGE):
            active += sum(node.state in ACTIVE and not flow_rules.wiring_of(node).alone for node in page)
            failed += sum(map(flow_rules.stops, page))
            found += len(page)
            after = index_of(page[-1].id)
        return flow_rules.CountedNodes(active, failed, found)


def _has_pieces(do: Callable[[], bool]) -> bool:
    """Does a piece of work until no more is left, or a bound is reached. Whether there was more than one."""
    for count in range(_PIECES):
        if not do():
            return count > 0
    return True


def _name_of(row: FlowRow) -> str:
    name = row.root.task.removeprefix(FLOW_TASK) if row.root else "?"
    return f"{name} {ids.text(row.id)}"
