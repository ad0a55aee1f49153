"""One reload: the plan is read, a canary shows that it can live, then the crews turn to it one process at a time."""

import logging
from collections.abc import Callable, Sequence

from msgspec import Struct

from tarry.errors import TarryError
from tarry.runtime.child_process import LATE, ChildProcess
from tarry.runtime.process_group import MAX_FAILED_STARTS, ProcessGroup
from tarry.runtime.role import Plan, Role
from tarry.runtime.scoreboard import Scoreboard

READING, CANARY, REPLACING = "reading", "canary", "turning"

_log = logging.getLogger("tarry.master")


class PreviousGroup(Struct, frozen=True):
    """A crew as it was, to go back to."""

    role: Role
    generation: int
    wanted: int


class Reload:
    """Times are of the monotonic clock. asked: the number of the last request that it answers.

    `trouble` is why it came to nothing, once it has; `over` whether it has ended, well or not.
    """

    def __init__(self, asked: int, generation: int, board: Scoreboard) -> None:
        self.request_number, self.generation = asked, generation
        self.stage = READING
        self.failure = ""
        self.is_over = False
        self.plan: Plan | None = None
        self.canary: ChildProcess | None = None
        self._plan_before: Plan | None = None
        self._board = board
        self._before: dict[tuple[str, str], PreviousGroup] = {}

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
            self.canary = ChildProcess(
                self.plan.canary, 1, self._board.allocate(self.plan.canary.cells), self.generation
            )
            self.canary.start(now, forget)
        except OSError as error:
            self.fail(f"no canary could be started: {error.strerror}")
        return None

    def fail(self, why: str) -> None:
        """Nothing comes of it; what serves goes on."""
        if not self.is_over:
            self.failure, self.is_over = why, True
            if self.canary is not None and self.canary.pid:
                self.canary.kill(LATE)

    def on_canary_exit(self, why: str) -> None:
        """Before it was ready that is a failure."""
        assert self.canary is not None
        if not self.canary.is_ready:
            self.fail(f"the canary ended with {why} before it was ready; the log may say more")

    def check_canary(self, now: float) -> bool:
        """Whether the crews may turn."""
        if self.stage != CANARY or self.is_over:
            return False
        assert self.plan is not None
        if self.canary is None or self.canary.is_ready:
            return True
        if now >= self.canary.started_at + self.plan.boot_limit:
            self.fail(f"the canary was not ready within {self.plan.boot_limit:g} s")
        return False

    def start_replacing(self, groups: dict[tuple[str, str], ProcessGroup], plan: Plan) -> Plan:
        """The crews turn from that plan to the new one, which is answered; those that are not in it are to leave."""
        assert self.plan is not None
        self.stage = REPLACING
        self._plan_before = plan
        self._before = {key: PreviousGroup(group.role, group.generation, group.wanted) for key, group in groups.items()}
        wanted = {(role.name, role.pool): role for role in self.plan.roles}
        for key, role in wanted.items():
            if key in groups:
                groups[key].replace_with(role, self.generation)
            else:
                groups[key] = ProcessGroup(role, self._board, self.generation)
        for key in groups.keys() - wanted.keys():
            groups[key].wanted = 0
        return self.plan

    def check_replacing(self, groups: dict[tuple[str, str], ProcessGroup]) -> bool:
        """Ends it when all are there, or when the processes of one crew cannot come up: True, go back."""
        if self.stage != REPLACING or self.is_over:
            return False
        stuck = next((group for group in groups.values() if group.failed_starts >= MAX_FAILED_STARTS), None)
        if stuck is not None:
            self.fail(stuck.start_error)
            return True
        self.is_over = all(group.is_complete for group in groups.values())
        return False

    def roll_back(self, groups: dict[tuple[str, str], ProcessGroup]) -> Plan:
        """Who still is as before stays; who was replaced already serves on too, until it ends by itself. Answers the
        plan from before."""
        for key, group in groups.items():
            if key in self._before:
                before = self._before[key]
                # How many there are may have been changed by hand in the meantime.
                same = group.role is not before.role and group.role.count == before.role.count
                wanted = group.wanted if same else before.wanted
                group.replace_with(before.role, before.generation)
                group.wanted = wanted
                group.adopt(self.generation)
            else:
                group.wanted = 0
        assert self._plan_before is not None
        return self._plan_before

    def close(self) -> None:
        """The canary is gone, and its place is free."""
        if self.canary is not None:
            self._board.release(self.canary.slot)


def describe_progress(groups: Sequence[ProcessGroup]) -> str:
    """How far a reload is, in a few words."""
    done = sum(child.is_ready and child.generation == group.generation for group in groups for child in group.children)
    return f"{done} of {sum(group.wanted for group in groups)} processes are new"
