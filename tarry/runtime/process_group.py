"""The processes of one role: kept at their count, and replaced one at a time, the new one first.

Told what there is to be, each turn brings what there is nearer to it: a reload, a recycling, another count and the
death of a process are all the same to it.
"""

import logging
from itertools import count

from tarry.runtime.child_process import Seat
from tarry.runtime.role import Role
from tarry.runtime.scoreboard import Scoreboard

TRIES = 3
"""After so many processes in a row that could not begin, the role is told as failed; it is still tried, slowly."""

_log = logging.getLogger("tarry.master")


class Crew:
    """Times are of the monotonic clock. wanted: how many there are to be; set it, then `tend`."""

    def __init__(self, role: Role, board: Scoreboard, generation: int) -> None:
        self.role, self.generation, self.wanted = role, generation, role.count
        self.resting = False
        """There is to be nobody for now, whatever is wanted."""
        self.seats: list[Seat] = []
        self.misses = 0
        """Processes in a row that ended before they were ready."""
        self.trouble = ""
        """Why the last one of those could not begin."""
        self._board, self._cramped = board, False
        self._ends: dict[int, str] = {}

    @property
    def key(self) -> tuple[str, str]:
        """What stays the same over reloads."""
        return (self.role.name, self.role.pool)

    @property
    def failed(self) -> str:
        """Why it cannot come up; empty: it can."""
        return self.trouble if self.misses >= TRIES else ""

    @property
    def settled(self) -> bool:
        """As many as wanted are ready, all of this generation; who was replaced may still be finishing its work."""
        stay = self._stay()
        ready = sum(seat.ready for seat in stay)
        return ready >= self._goal and all(seat.generation == self.generation for seat in stay)

    def turn_to(self, role: Role, generation: int) -> None:
        """From now on processes of that generation are wanted, in the place of all others."""
        if role.range is not None:
            self.wanted = role.range.nearest(self.wanted)
        elif (role.count, None) != (self.role.count, self.role.range):
            self.wanted = role.count
        self.role, self.generation = role, generation
        self.misses, self.trouble = 0, ""

    def keep(self, generation: int) -> None:
        """Processes of that generation are as good as those of this: they stay."""
        for seat in self.seats:
            if seat.pid and seat.generation == generation:
                seat.generation = self.generation

    def missed(self, why: str) -> None:
        """One ended before it was ready."""
        self.misses += 1
        self.trouble = why

    def tend(self, now: float) -> None:
        """Sees to it that the right ones leave, and that there is a seat for each that is to come. Where the scoreboard
        has no room for one, that is logged, once, and tried again at the next call."""
        try:
            self._tend(now)
            self._cramped = False
        except OSError as error:
            if not self._cramped:
                _log.error("%s: the scoreboard cannot grow (%s); trying on", self.role.named(1), error.strerror)
            self._cramped = True

    def _tend(self, now: float) -> None:
        self._clear()
        while leaver := self._expendable():
            self._dismiss(leaver, now)
        while len(self._stay()) < self._goal:
            self._add(self._free_number())
        if self._may_replace():
            self._add(self._oldest().number)
        if all(seat.ready for seat in self._stay()):
            self.misses, self.trouble = 0, ""

    def vacant(self, now: float) -> list[Seat]:
        """The seats that are to be filled now."""
        return [seat for seat in self._stay() if not seat.pid and seat.due <= now]

    def close(self) -> None:
        """Gives all places back: nobody is to come any more."""
        for seat in [seat for seat in self.seats if not seat.pid]:
            self._drop(seat)

    @property
    def _goal(self) -> int:
        return 0 if self.resting else self.wanted

    def _stay(self) -> list[Seat]:
        return [seat for seat in self.seats if not seat.asked]

    def _old(self, seat: Seat) -> bool:
        return bool(seat.pid) and (seat.generation != self.generation or bool(seat.worn))

    def _clear(self) -> None:
        empty = [seat for seat in self.seats if not seat.pid]
        for seat in empty:
            if seat.asked or seat.generation != self.generation:
                self._drop(seat)

    def _expendable(self) -> Seat | None:
        """One that may leave, since there are more than wanted; never one that is needed until another is ready."""
        stay = self._stay()
        if len(stay) <= self._goal:
            return None
        old = [seat for seat in stay if self._old(seat)]
        enough = sum(seat.ready for seat in stay) > self._goal
        if leaver := min((seat for seat in old if enough or not seat.ready), key=_by_age, default=None):
            return leaver
        if old and len(stay) == self._goal + 1:
            return None  # one more is there to take the place of an old one, once it is ready
        return max(stay, key=lambda seat: (not seat.pid, not seat.ready, seat.number))

    def _dismiss(self, seat: Seat, now: float) -> None:
        if seat.pid:
            why = seat.worn or ("replaced" if seat.generation != self.generation else "fewer are wanted")
            _log.info("%s asked to end, pid %d: %s", seat.name, seat.pid, why)
            seat.ask(now)
        else:
            self._drop(seat)

    def _drop(self, seat: Seat) -> None:
        """How its last process ended is still told by who follows in its place."""
        self.seats.remove(seat)
        self._ends[seat.number] = seat.slot.last_exit()
        self._board.give(seat.slot)
        for other in self.seats:
            if other.number in self._ends and not other.asked:
                other.slot.tell_last(self._ends.pop(other.number))

    def _may_replace(self) -> bool:
        stay = self._stay()
        if len(stay) > self._goal or not any(map(self._old, stay)) or not all(seat.ready for seat in stay):
            return False
        # A reload may have many that finish their work at a time; those that are worn out are few at a time.
        leaving = sum(bool(seat.asked and seat.worn) for seat in self.seats)
        outdated = any(seat.generation != self.generation for seat in stay)
        return outdated or leaving < max(1, self._goal // 4)

    def _oldest(self) -> Seat:
        return min((seat for seat in self._stay() if self._old(seat)), key=_by_age)

    def _add(self, number: int) -> None:
        seat = Seat(self.role, number, self._board.take(self.role.cells), self.generation)
        seat.slot.tell_last(self._ends.pop(number, ""))
        self.seats.append(seat)

    def _free_number(self) -> int:
        taken = {seat.number for seat in self._stay()}
        return next(number for number in count(1) if number not in taken)


def _by_age(seat: Seat) -> float:
    return seat.born
