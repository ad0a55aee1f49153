"""One reload: the plan is read, a canary shows that it can live, then the crews turn to it one process at a time."""

import logging
from collections.abc import Callable, Sequence

from msgspec import Struct

from tarry.errors import TarryError
from tarry.runtime.child_process import LATE, Seat
from tarry.runtime.process_group import TRIES, Crew
from tarry.runtime.role import Plan, Role
from tarry.runtime.scoreboard import Scoreboard

READING, CANARY, TURNING = "reading", "canary", "turning"

_log = logging.getLogger("tarry.master")


class Before(Struct, frozen=True):
    """A crew as it was, to go back to."""

    role: Role
    generation: int
    wanted: int


class Reload:
    """Times are of the monotonic clock. asked: the number of the last request that it answers.

    `trouble` is why it came to nothing, once it has; `over` whether it has ended, well or not.
    """

    def __init__(self, asked: int, generation: int, board: Scoreboard) -> None:
        self.asked, self.generation = asked, generation
        self.stage = READING
        self.trouble = ""
        self.over = False
        self.plan: Plan | None = None
        self.canary: Seat | None = None
        self._plan_before: Plan | None = None
        self._board = board
        self._before: dict[tuple[str, str], Before] = {}

    def begin(self, replan: Callable[[], Plan], now: float, forget: Callable[[], None]) -> None:
        """Reads the plan, and lets the canary fly."""
        try:
            self.plan = replan()
        except (TarryError, OSError) as error:
            return self.fail(str(error))
        self.stage = CANARY
        if self.plan.canary is None:
            return None
        try:
            self.canary = Seat(self.plan.canary, 1, self._board.take(self.plan.canary.cells), self.generation)
            self.canary.fill(now, forget)
        except OSError as error:
            self.fail(f"no canary could be started: {error.strerror}")
        return None

    def fail(self, why: str) -> None:
        """Nothing comes of it; what serves goes on."""
        if not self.over:
            self.trouble, self.over = why, True
            if self.canary is not None and self.canary.pid:
                self.canary.kill(LATE)

    def canary_ended(self, why: str) -> None:
        """Before it was ready that is a failure."""
        assert self.canary is not None
        if not self.canary.ready:
            self.fail(f"the canary ended with {why} before it was ready; the log may say more")

    def check_canary(self, now: float) -> bool:
        """Whether the crews may turn."""
        if self.stage != CANARY or self.over:
            return False
        assert self.plan is not None
        if self.canary is None or self.canary.ready:
            return True
        if now >= self.canary.born + self.plan.boot_limit:
            self.fail(f"the canary was not ready within {self.plan.boot_limit:g} s")
        return False

    def turn(self, crews: dict[tuple[str, str], Crew], plan: Plan) -> Plan:
        """The crews turn from that plan to the new one, which is answered; those that are not in it are to leave."""
        assert self.plan is not None
        self.stage = TURNING
        self._plan_before = plan
        self._before = {key: Before(crew.role, crew.generation, crew.wanted) for key, crew in crews.items()}
        wanted = {(role.name, role.pool): role for role in self.plan.roles}
        for key, role in wanted.items():
            if key in crews:
                crews[key].turn_to(role, self.generation)
            else:
                crews[key] = Crew(role, self._board, self.generation)
        for key in crews.keys() - wanted.keys():
            crews[key].wanted = 0
        return self.plan

    def check_turn(self, crews: dict[tuple[str, str], Crew]) -> bool:
        """Ends it when all are there, or when the processes of one crew cannot come up: True, go back."""
        if self.stage != TURNING or self.over:
            return False
        stuck = next((crew for crew in crews.values() if crew.misses >= TRIES), None)
        if stuck is not None:
            self.fail(stuck.trouble)
            return True
        self.over = all(crew.settled for crew in crews.values())
        return False

    def go_back(self, crews: dict[tuple[str, str], Crew]) -> Plan:
        """Who still is as before stays; who was replaced already serves on too, until it ends by itself. Answers the
        plan from before."""
        for key, crew in crews.items():
            if key in self._before:
                before = self._before[key]
                # How many there are may have been changed by hand in the meantime.
                same = crew.role is not before.role and crew.role.count == before.role.count
                wanted = crew.wanted if same else before.wanted
                crew.turn_to(before.role, before.generation)
                crew.wanted = wanted
                crew.keep(self.generation)
            else:
                crew.wanted = 0
        assert self._plan_before is not None
        return self._plan_before

    def close(self) -> None:
        """The canary is gone, and its place is free."""
        if self.canary is not None:
            self._board.give(self.canary.slot)


def spoken(crews: Sequence[Crew]) -> str:
    """How far a reload is, in a few words."""
    done = sum(seat.ready and seat.generation == crew.generation for crew in crews for seat in crew.seats)
    return f"{done} of {sum(crew.wanted for crew in crews)} processes are new"
