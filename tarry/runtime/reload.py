"""One reload: read the plan, check it with a canary, then replace the processes one at a time."""

import logging
from collections.abc import Callable, Sequence

from msgspec import Struct

from tarry.errors import TarryError
from tarry.runtime.child_process import LATE, ChildProcess
from tarry.runtime.process_group import MAX_FAILED_STARTS, ProcessGroup
from tarry.runtime.role import Plan, Role
from tarry.runtime.scoreboard import Scoreboard

READING, CANARY, REPLACING = "reading", "canary", "replacing"

_log = logging.getLogger("tarry.master")


class PreviousGroup(Struct, frozen=True):
    """What a group ran before the reload, for a rollback."""

    role: Role
    generation: int
    wanted: int


class Reload:
    """Times are of the monotonic clock. `request_number`: the last request that this reload serves.

    `failure`: why it failed; empty: it did not. `is_over`: it has ended, with or without success.
    """

    def __init__(self, request_number: int, generation: int, board: Scoreboard) -> None:
        self.request_number, self.generation = request_number, generation
        self.stage = READING
        self.failure = ""
        self.is_over = False
        self.plan: Plan | None = None
        self.canary: ChildProcess | None = None
        self._plan_before: Plan | None = None
        self._board = board
        self._before: dict[tuple[str, str], PreviousGroup] = {}

    def begin(self, read_plan: Callable[[], Plan], now: float, close_inherited: Callable[[], None]) -> None:
        """Reads the plan and starts the canary."""
        try:
            self.plan = read_plan()
        except (TarryError, OSError) as error:
            return self.fail(str(error))
        self.stage = CANARY
        if self.plan.canary is None:
            return None
        try:
            self.canary = ChildProcess(
                self.plan.canary, 1, self._board.allocate(self.plan.canary.cells), self.generation
            )
            self.canary.start(now, close_inherited)
        except OSError as error:
            self.fail(f"no canary could be started: {error.strerror}")
        return None

    def fail(self, why: str) -> None:
        """Ends the reload as failed. The running processes go on."""
        if not self.is_over:
            self.failure, self.is_over = why, True
            if self.canary is not None and self.canary.pid:
                self.canary.kill(LATE)

    def on_canary_exit(self, why: str) -> None:
        """The reload fails if the canary was not ready before."""
        assert self.canary is not None
        if not self.canary.is_ready:
            self.fail(f"the canary ended with {why} before it was ready; the log may say more")

    def check_canary(self, now: float) -> bool:
        """True: the canary was ready, and the processes may be replaced."""
        if self.stage != CANARY or self.is_over:
            return False
        assert self.plan is not None
        if self.canary is None or self.canary.is_ready:
            return True
        if now >= self.canary.started_at + self.plan.boot_limit:
            self.fail(f"the canary was not ready within {self.plan.boot_limit:g} s")
        return False

    def start_replacing(self, groups: dict[tuple[str, str], ProcessGroup], plan: Plan) -> Plan:
        """Sets all groups to the new plan and returns it. Groups that are not in it are to end."""
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
        """Ends the reload when all new processes are ready. True: those of one group cannot start, so roll back."""
        if self.stage != REPLACING or self.is_over:
            return False
        stuck = next((group for group in groups.values() if group.failed_starts >= MAX_FAILED_STARTS), None)
        if stuck is not None:
            self.fail(stuck.start_error)
            return True
        self.is_over = all(group.is_complete for group in groups.values())
        return False

    def roll_back(self, groups: dict[tuple[str, str], ProcessGroup]) -> Plan:
        """Sets all groups back to the plan from before, and returns it. Old processes stay; new ones run on until they
        end by themselves."""
        for key, group in groups.items():
            if key in self._before:
                before = self._before[key]
                # Somebody may have scaled the pool by hand during the reload.
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
        """Gives back the slot of the canary, which has ended."""
        if self.canary is not None:
            self._board.release(self.canary.slot)


def describe_progress(groups: Sequence[ProcessGroup]) -> str:
    """How far the reload is: `2 of 5 processes are new`."""
    done = sum(child.is_ready and child.generation == group.generation for group in groups for child in group.children)
    return f"{done} of {sum(group.wanted for group in groups)} processes are new"
