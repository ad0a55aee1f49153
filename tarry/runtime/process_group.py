"""The processes of one role: kept at their count, and replaced one at a time, the new one first.

Told what there is to be, each turn brings what there is nearer to it: a reload, a recycling, another count and the
death of a process are all the same to it.
"""

import logging
from itertools import count

from tarry.runtime.child_process import ChildProcess
from tarry.runtime.role import Role
from tarry.runtime.scoreboard import Scoreboard

MAX_FAILED_STARTS = 3
"""After so many processes in a row that could not begin, the role is told as failed; it is still tried, slowly."""

_log = logging.getLogger("tarry.master")


class ProcessGroup:
    """Times are of the monotonic clock. wanted: how many there are to be; set it, then `tend`."""

    def __init__(self, role: Role, board: Scoreboard, generation: int) -> None:
        self.role, self.generation, self.wanted = role, generation, role.count
        self.is_resting = False
        """There is to be nobody for now, whatever is wanted."""
        self.children: list[ChildProcess] = []
        self.failed_starts = 0
        """Processes in a row that ended before they were ready."""
        self.start_error = ""
        """Why the last one of those could not begin."""
        self._board, self._is_board_full = board, False
        self._last_exits: dict[int, str] = {}

    @property
    def key(self) -> tuple[str, str]:
        """What stays the same over reloads."""
        return (self.role.name, self.role.pool)

    @property
    def failure(self) -> str:
        """Why it cannot come up; empty: it can."""
        return self.start_error if self.failed_starts >= MAX_FAILED_STARTS else ""

    @property
    def is_complete(self) -> bool:
        """As many as wanted are ready, all of this generation; who was replaced may still be finishing its work."""
        stay = self._staying()
        ready = sum(child.is_ready for child in stay)
        return ready >= self._goal and all(child.generation == self.generation for child in stay)

    def replace_with(self, role: Role, generation: int) -> None:
        """From now on processes of that generation are wanted, in the place of all others."""
        if role.range is not None:
            self.wanted = role.range.clamp(self.wanted)
        elif (role.count, None) != (self.role.count, self.role.range):
            self.wanted = role.count
        self.role, self.generation = role, generation
        self.failed_starts, self.start_error = 0, ""

    def adopt(self, generation: int) -> None:
        """Processes of that generation are as good as those of this: they stay."""
        for child in self.children:
            if child.pid and child.generation == generation:
                child.generation = self.generation

    def record_failed_start(self, why: str) -> None:
        """One ended before it was ready."""
        self.failed_starts += 1
        self.start_error = why

    def reconcile(self, now: float) -> None:
        """Sees to it that the right ones leave, and that there is a seat for each that is to come. Where the scoreboard
        has no room for one, that is logged, once, and tried again at the next call."""
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
        while len(self._staying()) < self._goal:
            self._add(self._free_number())
        if self._may_replace():
            self._add(self._oldest_outdated().number)
        if all(child.is_ready for child in self._staying()):
            self.failed_starts, self.start_error = 0, ""

    def due_to_start(self, now: float) -> list[ChildProcess]:
        """The seats that are to be filled now."""
        return [child for child in self._staying() if not child.pid and child.start_at <= now]

    def close(self) -> None:
        """Gives all places back: nobody is to come any more."""
        for child in [child for child in self.children if not child.pid]:
            self._remove(child)

    @property
    def _goal(self) -> int:
        return 0 if self.is_resting else self.wanted

    def _staying(self) -> list[ChildProcess]:
        return [child for child in self.children if not child.stopping_since]

    def _is_outdated(self, child: ChildProcess) -> bool:
        return bool(child.pid) and (child.generation != self.generation or bool(child.recycle_reason))

    def _remove_empty(self) -> None:
        empty = [child for child in self.children if not child.pid]
        for child in empty:
            if child.stopping_since or child.generation != self.generation:
                self._remove(child)

    def _next_to_stop(self) -> ChildProcess | None:
        """One that may leave, since there are more than wanted; never one that is needed until another is ready."""
        stay = self._staying()
        if len(stay) <= self._goal:
            return None
        old = [child for child in stay if self._is_outdated(child)]
        enough = sum(child.is_ready for child in stay) > self._goal
        if leaver := min((child for child in old if enough or not child.is_ready), key=_start_time, default=None):
            return leaver
        if old and len(stay) == self._goal + 1:
            return None  # one more is there to take the place of an old one, once it is ready
        return max(stay, key=lambda child: (not child.pid, not child.is_ready, child.number))

    def _stop(self, child: ChildProcess, now: float) -> None:
        if child.pid:
            why = child.recycle_reason or ("replaced" if child.generation != self.generation else "fewer are wanted")
            _log.info("%s asked to end, pid %d: %s", child.name, child.pid, why)
            child.request_stop(now)
        else:
            self._remove(child)

    def _remove(self, child: ChildProcess) -> None:
        """How its last process ended is still told by who follows in its place."""
        self.children.remove(child)
        self._last_exits[child.number] = child.slot.last_exit()
        self._board.release(child.slot)
        for other in self.children:
            if other.number in self._last_exits and not other.stopping_since:
                other.slot.set_last_exit(self._last_exits.pop(other.number))

    def _may_replace(self) -> bool:
        stay = self._staying()
        if len(stay) > self._goal or not any(map(self._is_outdated, stay)) or not all(child.is_ready for child in stay):
            return False
        # A reload may have many that finish their work at a time; those that are worn out are few at a time.
        leaving = sum(bool(child.stopping_since and child.recycle_reason) for child in self.children)
        outdated = any(child.generation != self.generation for child in stay)
        return outdated or leaving < max(1, self._goal // 4)

    def _oldest_outdated(self) -> ChildProcess:
        return min((child for child in self._staying() if self._is_outdated(child)), key=_start_time)

    def _add(self, number: int) -> None:
        child = ChildProcess(self.role, number, self._board.allocate(self.role.cells), self.generation)
        child.slot.set_last_exit(self._last_exits.pop(number, ""))
        self.children.append(child)

    def _free_number(self) -> int:
        taken = {child.number for child in self._staying()}
        return next(number for number in count(1) if number not in taken)


def _start_time(child: ChildProcess) -> float:
    return child.started_at
