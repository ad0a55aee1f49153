"""Reads the lanes of one task for a claim, with a bound to what that costs."""

from collections.abc import Sequence

from tarry.store.sql.lane_reader import FoundLane, LaneRange

# Bounds, so that the cost of a claim has one too.
EXAMINED, FULL = 1000, 200
"""How many lanes of a task a claim examines at most, and how many without room or jobs it may meet."""
FEW_FULL = 16
"""Up to so many full lanes of a task stay open."""
_MORE = 64
"""How many lanes are read at least, after the first ones had too little room."""


class LaneScan:
    """Reads the lanes of one task once, by name: from the one served last to the end, then from the first."""

    def __init__(self, turn: str | None, most: int, enough: int | None = None, *, has_weighted: bool = False) -> None:
        self.most = most
        self.found: list[tuple[str, int]] = []
        """Lanes with room, and how much room, up to `most`."""
        self.rejected = self.passed = 0
        self.has_weighted = has_weighted
        """Whether lanes with weights of their own count; else they are passed over."""
        self.stretch = LaneRange(turn, None, 0)
        self._turn, self._read, self._size, self._at_end = turn, 0, most, False
        self._enough = most if enough is None else enough

    @property
    def ended(self) -> bool:
        """Whether no more lanes need to be read."""
        return self._has_enough or self._has_seen_all or self.has_given_up

    @property
    def is_full(self) -> bool:
        """Whether the rest of the lanes that were read last need not be looked at."""
        return len(self.found) >= self._enough or self.rejected >= FULL

    @property
    def has_given_up(self) -> bool:
        """Whether it stops with too few lanes although more may follow."""
        # Not those that were passed over: else the ones behind them would never have a turn.
        too_many = self.rejected >= FULL or self._examined - self.passed >= EXAMINED
        return too_many and not self._has_enough and not self._has_seen_all

    @property
    def has_read_stretch(self) -> bool:
        """Whether as many lanes were read as asked for, or all there are."""
        return not self.stretch.count or self._at_end

    @property
    def _has_enough(self) -> bool:
        return len(self.found) >= self._enough

    @property
    def _has_seen_all(self) -> bool:
        return self._at_end and self._examined == self._read

    @property
    def _examined(self) -> int:
        return len(self.found) + self.rejected + self.passed

    def next_stretch(self) -> LaneRange:
        """What to read next."""
        useful = FULL - self.rejected + self.most - len(self.found)
        self.stretch.count = min(self._size, useful, EXAMINED + self.passed - self._read)
        # Mostly the first lanes have room. If not, many may be full: larger steps need fewer round trips.
        self._size = max(4 * self._size, _MORE)
        return self.stretch

    def advance(self, lanes: Sequence[FoundLane]) -> None:
        """These lanes were read."""
        self._read += len(lanes)
        stretch = self.stretch
        stretch.count -= len(lanes)
        stretch.after = lanes[-1].name if lanes else stretch.after
        has_wrapped = stretch.last is not None or self._turn is None
        if has_wrapped:
            self._at_end = stretch.count > 0 or stretch.after == self._turn
        # Fewer than asked for: the end of the names is reached, so go on with the first, up to the lane served last.
        elif stretch.count:
            stretch.after, stretch.last = None, self._turn
