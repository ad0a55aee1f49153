"""How many requests an endpoint gets at once, and when it gets none: decided from what comes of them, for all hosts
together.

It begins with a few, doubles while all goes well until the first trouble, then goes up by one, and down by half when it
answers 429 or 503 or not in time. After `FAILURES` in a row its circuit opens: nothing is sent for a while, then one
request, and what comes of that says whether it closes or opens for longer.

The state is a cell of the store, changed only as it was seen, and what follows from it is the task's limit there: jobs
that must wait are ready in the store and take nobody's slot. What several workers see at once counts as one change.
"""

from msgspec import Struct
from msgspec.structs import replace

from tarry.model.duration import MINUTE, SECOND

INITIAL = 20
"""At once, of an endpoint of which nothing is known; or a tenth of a worker's slots, if that is more."""
CHANGE_INTERVAL = SECOND // 2
"""Microseconds between two changes of how many."""
FAILURES = 5
"""In a row, over all hosts, until the circuit opens; those longer ago than `FORGOTTEN` do not count."""
FAILURE_TTL = MINUTE
ROOM_TTL = 30 * SECOND
"""How long what a worker said of its room holds."""
FIRST_OPEN, MOST_OPEN = 2 * SECOND, 2 * MINUTE
"""Microseconds for which the circuit is open the first time, doubled each further time, and at most."""


class FlowState(Struct, frozen=True, omit_defaults=True):
    """Of one endpoint. Times are microseconds since the epoch, by the store's clock."""

    most: int
    """At once, while the circuit is closed."""
    rising: bool = True
    """There was no trouble yet."""
    at: int = 0
    """When `most` last changed."""
    failures: int = 0
    """In a row, the last one at `failed`."""
    failed: int = 0
    until: int = 0
    """Nothing starts before; 0: it is open for business."""
    opened: int = 0
    """How often in a row the circuit has opened; 0: it is closed."""
    probing: bool = False
    """The circuit is half open: one at a time, to see how it goes."""
    why: str = ""
    """What the last trouble was, in a line."""
    room: int = 0
    """The least that a worker has room for, of those that deliver to it; said last at `roomed`."""
    roomed: int = 0

    @property
    def allowed(self) -> int:
        """At once, now."""
        return 0 if self.until else 1 if self.probing else self.most


class Observed(Struct):
    """What came of the requests of one worker since it was last asked."""

    well: int = 0
    """Answered as by somebody who can do more."""
    busy: int = 0
    """429, 503, or not in time."""
    row: int = 0
    """Failures since the last that was none."""
    pause: int = 0
    """Until when it asked for no request at all, microseconds since the epoch."""
    room: int = 0
    """How many it had here when it was so slow that no more were let in; 0: that was not so."""
    why: str = ""

    def __bool__(self) -> bool:
        return bool(self.well or self.busy or self.row or self.pause or self.room)


def next_state(state: FlowState, seen: Observed, most: int, now: int) -> FlowState:
    """The state after that. most: for how many at once this worker has room."""
    if state.until and now >= state.until:
        state = replace(state, until=0, probing=state.opened > 0)
    if not seen:
        return state
    state = _fit_to_room(replace(state, why=seen.why or state.why), min(most, seen.room or most), now)
    most, failures = min(most, state.room), _consecutive_failures(state, seen, now)
    if state.until:
        # What comes now was begun before.
        return replace(state, until=max(state.until, seen.pause))
    if state.probing and not (seen.well or seen.row):
        return _pause(state, seen, now)
    if state.probing:
        return _close_circuit(state, most, now) if seen.well and not seen.row else _open_circuit(state, now)
    state = replace(state, failures=failures, failed=now if seen.row else state.failed)
    if failures >= FAILURES:
        return _open_circuit(state, now)
    return _pause(_adjust(state, seen, most, now), seen, now)


def _fit_to_room(state: FlowState, most: int, now: int) -> FlowState:
    """To the worker that has the least room, so that those with more do not raise what it lowers."""
    age = now - state.roomed
    if not state.room or most < state.room or age > ROOM_TTL or (most == state.room and age > ROOM_TTL // 3):
        state = replace(state, room=most, roomed=now)
    return replace(state, most=min(state.most, state.room))


def _consecutive_failures(state: FlowState, seen: Observed, now: int) -> int:
    before = 0 if seen.well or now - state.failed > FAILURE_TTL else state.failures
    return before + seen.row


def _adjust(state: FlowState, seen: Observed, most: int, now: int) -> FlowState:
    if now - state.at < CHANGE_INTERVAL:
        return state
    if seen.busy:
        return replace(state, most=max(1, state.most // 2), rising=False, at=now)
    if seen.well and state.most < most:
        more = 2 * state.most if state.rising else state.most + 1
        return replace(state, most=min(more, most), at=now)
    return state


def _pause(state: FlowState, seen: Observed, now: int) -> FlowState:
    return replace(state, until=seen.pause) if seen.pause > now else state


def _open_circuit(state: FlowState, now: int) -> FlowState:
    """For longer each time; afterwards fewer at once."""
    length = min(FIRST_OPEN << min(state.opened, 20), MOST_OPEN)
    most = max(1, state.most // 2)
    return replace(
        state,
        most=most,
        rising=False,
        at=now,
        failures=0,
        until=now + length,
        opened=state.opened + 1,
        probing=False,
    )


def _close_circuit(state: FlowState, most: int, now: int) -> FlowState:
    most = min(state.most, INITIAL, most)
    return FlowState(most, at=now, why=state.why, room=state.room, roomed=state.roomed)
