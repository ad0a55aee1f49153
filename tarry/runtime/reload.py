"""Reloads: read the plan, check it with a canary, then replace the processes one at a time.

A reload is requested by a signal, or by a change of files: at once, or after growing pauses if each reload causes the
next.
"""

import logging
import math
from collections.abc import Callable, Sequence
from time import monotonic, time

from msgspec import Struct

from tarry.errors import TarryError
from tarry.runtime.board.master_status import MasterStatus, Origin, PoolStatus
from tarry.runtime.board.scoreboard import Scoreboard
from tarry.runtime.child_process import LATE, ChildProcess
from tarry.runtime.notify import Notifier
from tarry.runtime.process_group import MAX_FAILED_STARTS, ProcessGroup
from tarry.runtime.processes import Processes
from tarry.runtime.role import Inherit, Plan, Role
from tarry.runtime.sockets.listeners import Listeners

READING, CANARY, REPLACING = "reading", "canary", "replacing"

# Somebody who works on the app may save often.
CHANGED_FILES = "a change of files"
"""In place of who asked for a reload."""
FREE_RELOADS = 5
"""So many reloads in a row come without a pause."""
ROW_GAP = 5.0
"""A change within so many seconds of the last reload counts as in a row."""
MAX_DELAY = 60.0
_MAX_CHANGE = 1000  # Characters of a log line that lists changed files.

_log = logging.getLogger("tarry.master")


class PreviousGroup(Struct, frozen=True):
    """What a group ran before the reload, for a rollback."""

    role: Role
    generation: int
    wanted: int


class Reload:
    """Times are of the monotonic clock. `request_number`: the last request that this reload serves.

    `failure`: why it failed; empty: it did not. `is_over`: it has ended, with or without success. `by`: who asked for
    it.
    """

    def __init__(self, request_number: int, generation: int, board: Scoreboard, by: str) -> None:
        self.request_number, self.generation, self.by = request_number, generation, by
        self.stage = READING
        self.failure = ""
        self.is_over = False
        self.plan: Plan | None = None
        self.canary: ChildProcess | None = None
        self._plan_before: Plan | None = None
        self._board = board
        self._before: dict[tuple[str, str], PreviousGroup] = {}

    def begin(self, read_plan: Callable[[], Plan], now: float, inherit: Inherit) -> None:
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
            self.canary.start(now, inherit)
        except OSError as error:
            self.fail(f"no canary could be started: {error.strerror}")
        return None

    def fail(self, why: str) -> None:
        """Ends the reload as failed. The running processes go on."""
        if not self.is_over:
            # The first cause stays: the death of the canary, which is killed here, only follows from it.
            self.failure, self.is_over = why, True
            if self.canary is not None and self.canary.pid:
                self.canary.kill(LATE)

    def on_canary_exit(self, why: str) -> None:
        """The reload fails if the canary was not ready before."""
        assert self.canary is not None
        if not self.canary.is_ready:
            self.fail(f"the canary ended before it was ready: {why}; the log may say more")

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


class Reloads:
    """The reloads of a master, one at a time. `requested`: how many were requested. `origin`: why the generation that
    serves began."""

    def __init__(
        self,
        processes: Processes,
        board: Scoreboard,
        notifier: Notifier,
        read_plan: Callable[[], Plan],
        listeners: Listeners,
        inherit: Inherit,
        origin: Origin,
    ) -> None:
        self.origin, self._asked_by = origin, ""
        self._listeners = listeners
        self._processes, self._board, self._notifier = processes, board, notifier
        self._read_plan, self._inherit = read_plan, inherit
        self._throttle = ReloadThrottle()
        self._current: Reload | None = None
        self._failure, self._ended_at = "", 0.0
        self.generation = 1
        """Of the processes that serve: each successful reload adds one."""
        self.requested = self._ended = self._done = 0
        """_ended: the last request whose reload is over. _done: nor does a process of before take jobs any more."""

    @property
    def due_at(self) -> float:
        """When a change of files triggers the next reload, in monotonic seconds; infinite: there was no change."""
        return self._throttle.due_at

    @property
    def is_running(self) -> bool:
        """From its begin until its canary has ended."""
        return self._current is not None

    @property
    def current_number(self) -> int:
        """The number of the request that the running reload serves; 0: none runs."""
        return self._current.request_number if self._current else 0

    def request(self, by: str) -> None:
        """A reload is wanted. by: who asks; empty: not known."""
        self.requested += 1
        # Of several requests that one reload serves, the last that says who.
        self._asked_by = by or self._asked_by

    def note_change(self, what: str) -> None:
        """Files have changed: a reload will follow."""
        pause = self._throttle.note_change(monotonic())
        when = f" in {pause:.0f} s, since each brings the next" if pause else ""
        _log.info("changed, so a reload is wanted%s: %s", when, what[:_MAX_CHANGE])

    def begin_due(self, now: float, follow_changes: bool) -> None:
        """Begins a reload if one was requested and none runs. follow_changes: a change of files is a request too."""
        if follow_changes and self._throttle.take_due(now):
            self.request(CHANGED_FILES)
        if self._current is None and self.requested > self._ended:
            # It serves all requests so far. Those that come while it runs make one more reload together.
            self._current = Reload(self.requested, self.generation + 1, self._board, self._asked_by)
            self._asked_by = ""
            _log.info("reload: reading the configuration")
            self._notifier.on_reload_start()
            self._current.begin(self._read_and_listen, now, self._inherit)
            self._processes.canary = self._current.canary

    def _read_and_listen(self) -> Plan:
        # New sockets before old ones are closed: if one cannot be opened, the reload fails and nothing has changed.
        plan = self._read_plan()
        self._listeners.open(plan.listens, plan.backlog)
        return plan

    def fail(self, why: str) -> None:
        """The canary could not start."""
        if self._current is not None:
            self._current.fail(why)

    def on_canary_exit(self, why: str) -> None:
        """The reload fails if the canary was not ready before."""
        if self._current is not None:
            self._current.on_canary_exit(why)

    def check_canary(self, now: float) -> bool:
        """True once: the canary is ready, so `start_replacing` is next."""
        return self._current is not None and self._current.check_canary(now)

    def start_replacing(self, plan: Plan) -> Plan:
        """Begins to replace the processes of this plan. Returns the new plan."""
        assert self._current is not None
        _log.info("reload: generation %d takes over", self._current.generation)
        return self._current.start_replacing(self._processes.groups, plan)

    def check_end(self, plan: Plan) -> Plan:
        """Ends or rolls back the running reload if it is time. Returns the plan from now on."""
        plan = self._check_current(plan)
        # A failed reload replaces nobody.
        if self._done < self._ended and (self._failure or not self._processes.unconfirmed(self.generation)):
            self._done = self._ended
            if self._current is None or self._current.is_over:
                self._notifier.on_reload_end(self._failure)
        return plan

    def _check_current(self, plan: Plan) -> Plan:
        reload = self._current
        if reload is None:
            return plan
        if reload.check_replacing(self._processes.groups):
            plan = reload.roll_back(self._processes.groups)
        if reload.is_over and self._ended < reload.request_number:
            self._end(reload)
            self._listeners.keep_only(plan.listens)
        # The reload is kept until its canary is reaped.
        if reload.is_over and (reload.canary is None or not reload.canary.pid):
            reload.close()
            self._current = self._processes.canary = None
        return plan

    def _end(self, reload: Reload) -> None:
        self._ended, self._failure, self._ended_at = reload.request_number, reload.failure, time()
        if reload.failure:
            _log.error("reload failed, and what ran goes on: %s", reload.failure)
        else:
            self.generation, self.origin = reload.generation, Origin("reload", reload.by)
            _log.info("reloaded: generation %d serves", self.generation)

    def status(self, pools: list[PoolStatus], away: str) -> MasterStatus:
        """The master's status. away: why the store cannot be reached; empty: it can."""
        reload = self._current
        stage = "" if reload is None or reload.is_over else reload.stage
        if stage == REPLACING:
            stage = describe_progress(list(self._processes.groups.values()))
        if not stage and self._done < self._ended and (silent := self._processes.unconfirmed(self.generation)):
            stage = f"waits until {silent[0].name}, pid {silent[0].pid}, takes no more jobs"
        return MasterStatus(
            *(self.generation, self.requested, self._done, stage, self._failure, pools, away),
            listening=self._listeners.shown(),
            reloaded=self._ended_at,
            origin=self.origin,
        )


class ReloadThrottle:
    """Delays reloads that follow each other fast. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self.due_at = math.inf
        """When the next reload is due."""
        self._in_a_row = 0
        self._last = -math.inf

    def note_change(self, now: float) -> float:
        """A file has changed. Returns in how many seconds a reload is due."""
        # The reload that is due will read this change, too.
        if self.due_at < math.inf:
            return max(0.0, self.due_at - now)
        # An app that writes to its own files when it is imported would reload for ever without growing pauses.
        self._in_a_row = self._in_a_row + 1 if now - self._last < ROW_GAP else 1
        pause = 0.0 if self._in_a_row <= FREE_RELOADS else min(MAX_DELAY, 2.0 ** min(self._in_a_row - FREE_RELOADS, 20))
        self.due_at = self._last = now + pause
        return pause

    def take_due(self, now: float) -> bool:
        """True once, when a reload is due."""
        if now < self.due_at:
            return False
        self.due_at = math.inf
        return True


def describe_progress(groups: Sequence[ProcessGroup]) -> str:
    """How far the reload is: `2 of 5 processes are new`."""
    done = sum(child.is_ready and child.generation == group.generation for group in groups for child in group.children)
    return f"{done} of {sum(group.wanted for group in groups)} processes are new"
