"""The processes of one role: kept at their count, and replaced one at a time, the new one first.

Each pass compares the wanted processes with the existing ones and takes a step towards them. A reload, recycling, a new
count and a death are all handled by this one rule.
"""

import logging
from collections import Counter
from itertools import count

from tarry.runtime.board.scoreboard import Scoreboard
from tarry.runtime.child_process import ChildProcess
from tarry.runtime.role import Role

MAX_FAILED_STARTS = 3
"""After so many failed starts in a row the role is shown as failed; starts go on, slowly."""

_log = logging.getLogger("tarry.master")


class ProcessGroup:
    """All processes of one role; not a Unix process group. Set `wanted`, their number, then call `reconcile`.

    Times are of the monotonic clock.
    """

    def __init__(self, role: Role, board: Scoreboard, generation: int) -> None:
        self.role, self.generation, self.wanted = role, generation, role.count
        self.is_resting = False
        """True: no process is to run for now, whatever `wanted` says."""
        self.children: list[ChildProcess] = []
        self.ends: Counter[str] = Counter()
        """How often its processes were replaced, by the reason: see `child_process.JOBS`."""
        self.failed_starts = 0
        """How many processes in a row ended before they were ready."""
        self.start_error = ""
        """Why the last of those could not start."""
        self._board, self._is_board_full = board, False
        self._last_exits: dict[int, str] = {}

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the group over reloads."""
        return (self.role.name, self.role.pool)

    @property
    def failure(self) -> str:
        """Why its processes cannot start; empty: they can."""
        return self.start_error if self.failed_starts >= MAX_FAILED_STARTS else ""

    @property
    def is_complete(self) -> bool:
        """True: as many as wanted are ready, all of this generation. Replaced processes may still finish their jobs."""
        stay = self._staying_processes()
        ready = sum(child.is_ready for child in stay)
        return ready >= self._goal and all(child.generation == self.generation for child in stay)

    def replace_with(self, role: Role, generation: int) -> None:
        """From now on, processes of that generation are wanted instead of all others."""
        # A number set by hand is kept, unless the reload changes the pool's own number or bounds.
        if role.range is not None:
            self.wanted = role.range.clamp(self.wanted)
        elif (role.count, None) != (self.role.count, self.role.range):
            self.wanted = role.count
        self.role, self.generation = role, generation
        self.failed_starts, self.start_error = 0, ""

    def adopt(self, generation: int) -> None:
        """Counts the running processes of that generation as of this one: they stay."""
        for child in self.children:
            if child.pid and child.generation == generation:
                child.generation = self.generation

    def record_failed_start(self, why: str) -> None:
        """A process ended before it was ready."""
        self.failed_starts += 1
        self.start_error = why

    def reconcile(self, now: float) -> None:
        """Asks surplus processes to end, and adds a place for each missing one. If the scoreboard cannot grow, this is
        logged once and tried again at the next call."""
        try:
            self._reconcile(now)
            self._is_board_full = False
        except OSError as error:
            if not self._is_board_full:
                _log.error("%s: the scoreboard cannot grow (%s); trying on", self.role.process_name(1), error.strerror)
            self._is_board_full = True

    def _reconcile(self, now: float) -> None:
        self._remove_empty()
        while leaver := self._next_to_stop():
            self._stop(leaver, now)
        while len(self._staying_processes()) < self._goal:
            self._add(self._free_number())
        if self._may_replace():
            self._add(self._oldest_outdated().number)
        if all(child.is_ready for child in self._staying_processes()):
            self.failed_starts, self.start_error = 0, ""

    def due_to_start(self, now: float) -> list[ChildProcess]:
        """The places where a process is to be started now."""
        return [child for child in self._staying_processes() if not child.pid and child.start_at <= now]

    def close(self) -> None:
        """Gives up all empty places."""
        for child in [child for child in self.children if not child.pid]:
            self._remove(child)

    @property
    def _goal(self) -> int:
        return 0 if self.is_resting else self.wanted

    def _staying_processes(self) -> list[ChildProcess]:
        return [child for child in self.children if not child.stopping_since]

    def _is_outdated(self, child: ChildProcess) -> bool:
        return bool(child.pid) and (child.generation != self.generation or bool(child.recycle_reason))

    def _remove_empty(self) -> None:
        empty = [child for child in self.children if not child.pid]
        for child in empty:
            # A place of another generation would start a process of an old plan.
            if child.stopping_since or child.generation != self.generation:
                self._remove(child)

    def _next_to_stop(self) -> ChildProcess | None:
        """A process that is surplus and may end now; never one that is needed until its replacement is ready."""
        stay = self._staying_processes()
        if len(stay) <= self._goal:
            return None
        old = [child for child in stay if self._is_outdated(child)]
        enough = sum(child.is_ready for child in stay) > self._goal
        # An old process that serves is needed until there are enough others; one that is not ready is no loss.
        if leaver := min((child for child in old if enough or not child.is_ready), key=_start_time, default=None):
            return leaver
        if old and len(stay) == self._goal + 1:
            return None  # the one too many is a replacement that is not ready yet
        return max(stay, key=lambda child: (not child.pid, not child.is_ready, child.number))

    def _stop(self, child: ChildProcess, now: float) -> None:
        if child.pid:
            why = child.recycle_reason or ("replaced" if child.generation != self.generation else "no longer needed")
            _log.info("%s asked to end, pid %d: %s", child.name, child.pid, why)
            child.request_stop(now)
        else:
            self._remove(child)

    def _remove(self, child: ChildProcess) -> None:
        """Removes the place. The next process of that number still shows how the last one ended."""
        self.children.remove(child)
        self._last_exits[child.number] = child.slot.last_exit()
        self._board.release(child.slot)
        for other in self.children:
            if other.number in self._last_exits and not other.stopping_since:
                other.slot.set_last_exit(self._last_exits.pop(other.number))

    def _may_replace(self) -> bool:
        stay = self._staying_processes()
        # One at a time: all others must be ready, so that the pool never has fewer workers than wanted.
        if len(stay) > self._goal or not any(map(self._is_outdated, stay)) or not all(child.is_ready for child in stay):
            return False
        # In a reload many may finish their jobs at the same time; for recycling at most a quarter may.
        leaving = sum(bool(child.stopping_since and child.recycle_reason) for child in self.children)
        outdated = any(child.generation != self.generation for child in stay)
        return outdated or leaving < max(1, self._goal // 4)

    def _oldest_outdated(self) -> ChildProcess:
        return min((child for child in self._staying_processes() if self._is_outdated(child)), key=_start_time)

    def _add(self, number: int) -> None:
        slot = self._board.allocate(self.role.cells)
        child = ChildProcess(self.role, number, slot, self.generation, self.ends)
        child.slot.set_last_exit(self._last_exits.pop(number, ""))
        self.children.append(child)

    def _free_number(self) -> int:
        # The number of a process that is leaving is free: its replacement takes over its name.
        taken = {child.number for child in self._staying_processes()}
        return next(number for number in count(1) if number not in taken)


def _start_time(child: ChildProcess) -> float:
    return child.started_at
