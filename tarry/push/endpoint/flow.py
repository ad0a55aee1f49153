"""Flow control and circuit breaker of an endpoint, for all hosts together.

The concurrency starts low. It doubles while all requests succeed, until the first trouble; then it grows by one, and
halves when the endpoint answers 429 or 503 or times out. After `FAILURES` in a row the circuit opens: nothing is sent
for a while, then one probe, whose outcome closes the circuit or opens it for longer.

The state is a cell of the store, written only if it is unchanged since it was read. The task's limit in the store
follows from it, so jobs that must wait stay ready in the store and take no slot.
"""

from msgspec import Struct
from msgspec.structs import replace

from tarry.model.duration import MINUTE, SECOND

INITIAL = 20
"""Concurrency of a new endpoint; or a tenth of a worker's slots, if that is more."""
CHANGE_INTERVAL = SECOND // 2
"""Microseconds between two changes of the concurrency."""
FAILURES = 5
"""Consecutive failures, over all hosts, until the circuit opens. Those older than `FAILURE_TTL` do not count."""
FAILURE_TTL = MINUTE
ROOM_TTL = 30 * SECOND
"""Microseconds for which a worker's report of its room is valid."""
FIRST_OPEN, MOST_OPEN = 2 * SECOND, 2 * MINUTE
"""Microseconds for which the circuit is open the first time, doubled each further time, and at most."""


class FlowState(Struct, frozen=True, omit_defaults=True):
    """The state of one endpoint. Times are microseconds since the epoch, by the store's clock."""

    most: int
    """The concurrency while the circuit is closed."""
    rising: bool = True
    """No trouble so far: the concurrency may double."""
    at: int = 0
    """When `most` last changed."""
    failures: int = 0
    """Consecutive failures, the last one at `failed`."""
    failed: int = 0
    until: int = 0
    """Nothing is sent before; 0: no pause."""
    opened: int = 0
    """How often the circuit has opened in a row; 0: it is closed."""
    probing: bool = False
    """The circuit is half open: one request at a time."""
    why: str = ""
    """The last trouble, in one line."""
    room: int = 0
    """The smallest room that any of its workers has; last reported at `roomed`."""
    roomed: int = 0
    since: int = 0
    """When the circuit opened, the first time in a row, or the present pause began; 0: not known, or it is closed."""

    @property
    def allowed(self) -> int:
        """The concurrency now."""
        return 0 if self.until else 1 if self.probing else self.most


class Observed(Struct):
    """Outcomes of one worker's requests since the last update."""

    well: int = 0
    """Answers that show no overload."""
    busy: int = 0
    """Answers 429 or 503, and timeouts."""
    row: int = 0
    """Failures since the last success."""
    pause: int = 0
    """The endpoint asked for no requests until then, microseconds since the epoch."""
    room: int = 0
    """How many requests were open here when the worker refused more because of slowness; 0: it did not."""
    why: str = ""

    def __bool__(self) -> bool:
        return bool(self.well or self.busy or self.row or self.pause or self.room)


def next_state(state: FlowState, seen: Observed, most: int, now: int) -> FlowState:
    """The state after these observations. most: for how many at once this worker has room."""
    if state.until and now >= state.until:
        state = replace(state, until=0, probing=state.opened > 0, since=state.since if state.opened else 0)
    if not seen:
        return state
    state = _fit_to_room(replace(state, why=seen.why or state.why), min(most, seen.room or most), now)
    most, failures = min(most, state.room), _consecutive_failures(state, seen, now)
    if state.until:
        # These requests began before the pause.
        return replace(state, until=max(state.until, seen.pause))
    if state.probing and not (seen.well or seen.row):
        # The probe was told to wait, or is still open: that neither closes nor opens the circuit.
        return _pause(state, seen, now)
    if state.probing:
        return _close_circuit(state, most, now) if seen.well and not seen.row else _open_circuit(state, now)
    state = replace(state, failures=failures, failed=now if seen.row else state.failed)
    if failures >= FAILURES:
        return _open_circuit(state, now)
    return _pause(_adjust(state, seen, most, now), seen, now)


def _fit_to_room(state: FlowState, most: int, now: int) -> FlowState:
    """Fits the state to the worker with the least room."""
    # The state remembers the room: otherwise workers with more room would raise the concurrency again. The report is
    # renewed only now and then, since each change is a write to the store.
    age = now - state.roomed
    if not state.room or most < state.room or age > ROOM_TTL or (most == state.room and age > ROOM_TTL // 3):
        state = replace(state, room=most, roomed=now)
    return replace(state, most=min(state.most, state.room))


def _consecutive_failures(state: FlowState, seen: Observed, now: int) -> int:
    before = 0 if seen.well or now - state.failed > FAILURE_TTL else state.failures
    return before + seen.row


def _adjust(state: FlowState, seen: Observed, most: int, now: int) -> FlowState:
    # What several workers see at the same time counts as one change.
    if now - state.at < CHANGE_INTERVAL:
        return state
    if seen.busy:
        return replace(state, most=max(1, state.most // 2), rising=False, at=now)
    if seen.well and state.most < most:
        more = 2 * state.most if state.rising else state.most + 1
        return replace(state, most=min(more, most), at=now)
    return state


def _pause(state: FlowState, seen: Observed, now: int) -> FlowState:
    return replace(state, until=seen.pause, since=state.since or now) if seen.pause > now else state


def _open_circuit(state: FlowState, now: int) -> FlowState:
    """Opens the circuit, for longer each time, and halves the concurrency."""
    # The count grows for as long as the endpoint is down, so the shift is bounded.
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
        since=state.since or now,
    )


def _close_circuit(state: FlowState, most: int, now: int) -> FlowState:
    # An endpoint that has just recovered starts low again.
    most = min(state.most, INITIAL, most)
    return FlowState(most, at=now, why=state.why, room=state.room, roomed=state.roomed)
