"""What was to arrive, what did, and the sum of it."""

from collections.abc import Sequence

from msgspec import Struct

from examples.shop.clock import Clock
from examples.shop.server import Arrival

EARLY = 0.005
"""Seconds by which two readings of a clock may differ."""


class Promise(Struct):
    """The requests of one job."""

    what: str
    clock: Clock
    moments: Sequence[float]
    """When each attempt is to arrive; none: nothing may arrive."""
    arrivals: dict[int, float]
    """The first of each attempt, in seconds since the epoch."""
    repeated: int = 0
    """An attempt that arrived before: its worker died in the middle."""

    def take(self, arrival: Arrival) -> None:
        """It has arrived."""
        if arrival.attempt in self.arrivals:
            self.repeated += 1
        self.arrivals.setdefault(arrival.attempt, arrival.at)

    def moment(self, attempt: int) -> float | None:
        """When that attempt was to arrive; None: never."""
        return self.moments[attempt - 1] if attempt <= len(self.moments) else None

    def late(self, attempt: int) -> float:
        """Seconds, of one that was to arrive and did: since a delay begins when the attempt before is over, as much
        later than that one was."""
        late = self.clock.late(self.moments[attempt - 1], self.arrivals[attempt])
        before = attempt - 1
        if before not in self.arrivals:
            return late
        return late - self.clock.late(self.moments[before - 1], self.arrivals[before])

    @property
    def all_late(self) -> list[float]:
        """Seconds, of each that was to arrive and did."""
        return [self.late(attempt) for attempt in range(1, len(self.moments) + 1) if attempt in self.arrivals]

    @property
    def lost(self) -> int:
        """What was to arrive and did not."""
        return len(self.moments) - len(self.all_late)

    @property
    def unplanned(self) -> int:
        """What arrived and was not to, or too early."""
        return len(self.arrivals) - len(self.all_late) + sum(late < -EARLY for late in self.all_late)


class Account(Struct):
    """Of one story."""

    story: str
    planned: int
    arrived: int
    latest: float
    """Seconds."""
    repeated: int
    lost: int
    faults: list[str]
    """What went otherwise than planned."""

    @property
    def as_planned(self) -> bool:
        """All came, nothing else did, and nothing went wrong on the way."""
        return not self.lost and not self.faults


def of(story: str, promises: Sequence[Promise], faults: Sequence[str]) -> Account:
    """The account of a story."""
    late = [seconds for promise in promises for seconds in promise.all_late]
    strange = [f"{promise.what}: {promise.unplanned} not planned" for promise in promises if promise.unplanned]
    return Account(
        story,
        sum(len(promise.moments) for promise in promises),
        len(late),
        max(late, default=0.0),
        sum(promise.repeated for promise in promises),
        sum(promise.lost for promise in promises),
        [*faults, *strange],
    )


def lines(accounts: Sequence[Account]) -> list[str]:
    """For people: a table, what went wrong, and the sum."""
    heads = f"{'story':<12}{'as planned':<12}{'arrived':<10}{'late at most':<14}{'twice':<7}lost"
    rows = [
        f"{one.story:<12}{'yes' if one.as_planned else 'no':<12}{f'{one.arrived} of {one.planned}':<10}"
        f"{f'{1000 * one.latest:.0f} ms':<14}{one.repeated:<7}{one.lost}"
        for one in accounts
    ]
    wrong = [f"{one.story}: {fault}" for one in accounts for fault in one.faults]
    good = sum(one.as_planned for one in accounts)
    repeated, lost = sum(one.repeated for one in accounts), sum(one.lost for one in accounts)
    return [heads, *rows, *wrong, f"{good} of {len(accounts)} stories as planned, repeated {repeated}, lost {lost}"]
