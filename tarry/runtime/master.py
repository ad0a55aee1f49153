"""The master: one loop that handles signals, reaps children, kills overdue ones, starts new ones, and sleeps.

It opens no store, imports no user code and starts no thread, so only a bug in its own code can bring it down.
"""

import logging
import select
import signal
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from time import monotonic

from tarry.runtime.board.layout import QUITTING, RESTING, SERVING, STARTING, STOPPING
from tarry.runtime.board.scoreboard import Scoreboard
from tarry.runtime.child_process import LATE, QUIT, ChildProcess, exit_reason, reap_children
from tarry.runtime.logs import handlers
from tarry.runtime.master_status import MasterStatus
from tarry.runtime.notify import Notifier
from tarry.runtime.pidfile import PidFile
from tarry.runtime.process_group import MAX_FAILED_STARTS, ProcessGroup
from tarry.runtime.processes import DeathReports, Processes
from tarry.runtime.reload import Reloads
from tarry.runtime.report import log_report
from tarry.runtime.role import KEEPER, WATCHER, Plan
from tarry.runtime.scale_request import scale_path, take_request
from tarry.runtime.scaling import Scaling, pool_status
from tarry.runtime.signals import Signals, signal_name, unblock_signals
from tarry.runtime.socket_activation import ActivationSockets

_STOP = (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR2, signal.SIGTERM)
# Not QUIT: two people who both run `tarry stop` do not mean a quit.
_TWICE_IS_QUIT = (signal.SIGINT, signal.SIGTERM)
_MORE_OR_FEWER = {signal.SIGTTIN: 1, signal.SIGTTOU: -1}
_HANDLED = (*_STOP, signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH, *_MORE_OR_FEWER, signal.SIGCHLD)
_IGNORED = (signal.SIGPIPE,)
_UP = (STARTING, SERVING, RESTING)

# Seconds. A kill time that a job gets while the master sleeps is seen after this time at the latest.
_LONGEST_SLEEP = 0.5
_KEEPER_LIMIT = 5.0  # Seconds for the keeper to confirm all dead processes, and, in a forced stop, to end.
_AWAY_LIMIT = 1.0  # The same while the store is away.
_FAILED_START_GRACE = 5.0

_log = logging.getLogger("tarry.master")


class Master:
    """Keeps the plan's processes running until it is told to stop. `failure`: why the first start failed.

    on_serving: called once, when every child is ready. replan: reads the plan again for a reload; it raises TarryError
    or OSError if it cannot. Paths are used as given: make them absolute before `daemonize`.
    """

    def __init__(
        self,
        plan: Plan,
        pid_file: Path,
        board_path: Path,
        on_serving: Callable[[], None] = lambda: None,
        replan: Callable[[], Plan] | None = None,
    ) -> None:
        self._plan, self._board_path, self._scale_path = plan, board_path, scale_path(pid_file)
        self._on_serving, self._read_plan = on_serving, replan or (lambda: plan)
        self._signals, self._pid_file = Signals(_HANDLED, _IGNORED), PidFile(pid_file)
        self._sockets, self._notifier = ActivationSockets(), Notifier.from_environ(board_path)
        self._scaling, self._processes = Scaling(), Processes()
        self._deaths = DeathReports(self._processes)
        self._stop_signals: set[int] = set()
        self._state = STARTING
        self._started_at = 0.0
        self._deadline = float("inf")
        self._workers_gone_at = 0.0
        self._rest_after = -1
        """Number of the last reload requested before a WINCH. A reload requested later ends the rest; -1: no WINCH."""
        self._away = ""
        self._published = MasterStatus()
        self.failure = ""

    def run(self) -> int:
        """Returns when stopped, with the exit status: 0, or 1 with `failure`. MasterError: a master already runs."""
        with self._signals, self._pid_file:
            unblock_signals()
            roles = self._plan.roles
            self._board = Scoreboard(self._board_path, [role.cells for role in roles for _ in range(role.count)])
            self._reloads = Reloads(self._processes, self._board, self._notifier, self._read_plan, self._close_in_child)
            try:
                self._make_groups()
                self._loop()
                # A late signal must not kill the master before its files are removed.
                self._signals.ignore()
            finally:
                self._close_sockets()
                self._board.remove()
        return 1 if self.failure else 0

    def _make_groups(self) -> None:
        for role in self._plan.roles:
            group = ProcessGroup(role, self._board, self._reloads.generation)
            self._processes.groups[group.key] = group
        self._started_at = monotonic()
        self._publish_status()  # before the first fork: other processes may read it from now on

    def _loop(self) -> None:
        while True:
            now = monotonic()
            for number in self._signals.take():
                self._handle(number, now)
            self._receive_all()
            self._reap(now)
            self._kill_overdue(now)
            self._check_boot(now)
            self._advance_reload(now)
            self._advance_stop(now)
            self._reconcile(now)
            self._publish_status()
            self._notifier.beat(now)
            if self._is_over(now):
                return
            self._sleep(now)

    def _handle(self, number: int, now: float) -> None:
        match number:
            case signal.SIGHUP:
                handlers.reopen()
                self._reloads.requested += 1
            case signal.SIGUSR1:
                log_report(self._board_path)
            case signal.SIGWINCH:
                self._rest()
            case signal.SIGTTIN | signal.SIGTTOU:
                self._change_count(_MORE_OR_FEWER[signal.Signals(number)])
            case signal.SIGCHLD:
                pass  # every pass of the loop reaps
            case _:
                self._handle_stop(number, now)

    def _handle_stop(self, number: int, now: float) -> None:
        _log.info("%s received", signal_name(number))
        if number in self._stop_signals and number in _TWICE_IS_QUIT:
            self._quit()
        elif number == signal.SIGTERM:
            self._deadline = min(self._deadline, now + self._plan.term_grace)
        self._stop_signals.add(number)
        self._stop()

    def _rest(self) -> None:
        """Stops the workers gracefully and waits for a reload. A start is completed first."""
        self._rest_after = self._reloads.requested
        if self._state == SERVING:
            self._set_state(RESTING)

    def _change_count(self, by: int) -> None:
        """Scales the pool that `tarry scale` named in its file; without such a file, the first pool by one."""
        groups = {group.role.pool: group for group in self._processes.pools()}
        pool, wanted = take_request(self._scale_path) or (next(iter(groups), ""), None)
        if pool in groups and self._state in _UP:
            self._scaling.set_by_hand(groups[pool], by, wanted, monotonic())

    def _receive_all(self) -> None:
        for child in self._processes.all():
            self._receive(child)

    def _receive(self, child: ChildProcess) -> None:
        if child.pipe is None:
            return
        child.pipe.flush()
        for message in child.pipe.receive():
            if message.get("ready"):
                self._on_ready(child)
            elif "failed" in message:
                self._on_boot_failure(child, str(message["failed"]))
            elif "returned" in message:
                self._deaths.confirm(str(message["returned"]))
            elif "away" in message:
                self._away = str(message["away"])
            elif "backlog" in message and child.is_keeper and self._state == SERVING and not self._reloads.is_running:
                self._scaling.follow_backlogs(message["backlog"], self._processes.pools(), monotonic())
            elif "changed" in message and child.role.name == WATCHER and self._state in (STARTING, SERVING):
                self._reloads.note_change(str(message["changed"]))

    def _on_ready(self, child: ChildProcess) -> None:
        child.is_ready = True
        _log.info("%s ready, pid %d", child.name, child.pid)
        if group := self._processes.group_of(child):
            group.failed_starts = 0
        if child.is_keeper:
            self._deaths.resend([child])

    def _on_boot_failure(self, child: ChildProcess, text: str) -> None:
        _log.error("%s could not start: %s", child.name, text)
        child.start_error = f"{child.name} could not start: {text}"
        self._give_up(child.start_error)
        if child is self._processes.canary:
            self._reloads.fail(child.start_error)

    def _reap(self, now: float) -> None:
        ours = {child.pid: child for child in self._processes.all() if child.pid}
        for pid, status in reap_children(ours):
            if child := ours.get(pid):
                self._receive(child)  # its last messages may explain its end
                self._handle_exit(child, exit_reason(status), now)

    def _handle_exit(self, child: ChildProcess, why: str, now: float) -> None:
        pid, expected = child.pid, bool(child.stopping_since) or why == exit_reason(0)
        was_ready, message = child.is_ready, child.record_exit(why)
        delay = child.back_off(now)
        again = f"; another in {delay:.1f} s" if self._will_restart(child, now) else ""
        level = logging.INFO if expected else logging.WARNING
        _log.log(level, "%s ended, pid %d: %s, at %d jobs%s", child.name, pid, why, len(message["on"]), again)
        start_error = child.start_error or f"{child.name} ended with {why} before it was ready; the log may say more"
        if not child.stopping_since:
            self._give_up(f"{child.name} ended with {why} before the start was complete; the log may say more")
        if child is self._processes.canary:
            # `record_exit` has cleared it, and the reload asks whether the canary was ready.
            child.is_ready = was_ready
            self._reloads.on_canary_exit(why)
        elif (group := self._processes.group_of(child)) and not was_ready and not child.stopping_since:
            group.record_failed_start(start_error)
            if (count := group.failed_starts) == MAX_FAILED_STARTS:
                _log.error("%s: %d processes in a row could not begin; trying on, slowly", child.name, count)
        if child.is_keeper:
            # The dead keeper may have read messages that it did not answer any more.
            self._deaths.resend(self._processes.ready_keepers())
        elif message["gone"]:
            self._deaths.report(message)

    def _kill_overdue(self, now: float) -> None:
        for child in self._processes.all():
            if child.pid:
                child.kill_if_overdue(now)
                self._kill_late(child, now)

    def _kill_late(self, child: ChildProcess, now: float) -> None:
        """Kills a child that is not ready in time, or, after a reload, takes too long over its last jobs."""
        if self._state in (SERVING, RESTING) and not child.is_ready and now >= child.started_at + self._plan.boot_limit:
            child.start_error = f"{child.name} was not ready within {self._plan.boot_limit:g} s"
            child.kill(LATE)
        timeout = self._plan.reload_timeout
        if self._state == SERVING and child.stopping_since and 0 < timeout <= now - child.stopping_since:
            child.kill(LATE)

    def _check_boot(self, now: float) -> None:
        if self._state != STARTING:
            return
        late = [child.name for child in self._processes.all() if not child.is_ready]
        if not late and all(group.is_complete for group in self._processes.groups.values()):
            self._set_state(SERVING)
            self._on_serving()
            if self._rest_after >= 0:
                self._set_state(RESTING)
        elif late and now >= self._started_at + self._plan.boot_limit:
            self._give_up(f"{', '.join(late)} not ready within {self._plan.boot_limit:g} s")

    def _give_up(self, failure: str) -> None:
        """Stops the master if it is still starting. Later a child that cannot start stops nothing."""
        if self._state == STARTING:
            self.failure = failure
            self._deadline = monotonic() + _FAILED_START_GRACE
            self._stop()

    def _advance_reload(self, now: float) -> None:
        if self._state not in (SERVING, RESTING):
            return
        self._reloads.begin_due(now, follow_changes=self._state == SERVING)
        if self._reloads.check_canary(now):
            self._plan = self._reloads.start_replacing(self._plan)
            if self._state == RESTING and self._reloads.current_number > self._rest_after:
                self._set_state(SERVING)
        self._plan = self._reloads.check_end(self._plan)

    def _stop(self) -> None:
        if self._state in _UP:
            self._set_state(STOPPING)
            if self._away:
                _log.warning("stopping while the store is away, which is waited for: %s", self._away)

    def _quit(self) -> None:
        if self._state != QUITTING:
            self._set_state(QUITTING)

    def _set_state(self, state: str) -> None:
        self._state = state
        self._board.set_state(state)
        self._notifier.on_state(state, self.failure)
        _log.info("%s", state)

    def _advance_stop(self, now: float) -> None:
        if self._state in _UP:
            return
        if now >= self._deadline:
            self._quit()
        for group in self._processes.worker_groups():
            group.wanted = 0
        for child in self._processes.workers():
            if self._state == QUITTING:
                child.kill(QUIT)
            else:
                child.request_stop(now)
        self._workers_gone_at = self._workers_gone_at or (0.0 if self._processes.workers() else now)
        if not self._is_keeper_needed(now):
            self._stop_keepers(now)

    def _stop_keepers(self, now: float) -> None:
        for group in self._processes.groups.values():
            if group.role.name == KEEPER:
                group.wanted = 0
        for child in self._processes.all():
            late = 0 < child.stopping_since <= now - self._keeper_limit
            if child.pid and child.is_keeper and late and (self._state == QUITTING or self._away):
                child.kill(QUIT)

    @property
    def _keeper_limit(self) -> float:
        return _AWAY_LIMIT if self._away else _KEEPER_LIMIT

    def _is_keeper_needed(self, now: float) -> bool:
        """True while workers live, and until the keeper has confirmed all deaths or its time is over."""
        if self.failure:
            return False
        return bool(self._processes.workers()) or (
            bool(self._deaths.owners()) and now < self._workers_gone_at + self._keeper_limit
        )

    def _will_restart(self, child: ChildProcess, now: float) -> bool:
        if child.stopping_since or self._processes.group_of(child) is None:
            return False
        return self._state in _UP or (child.is_keeper and self._is_keeper_needed(now))

    def _reconcile(self, now: float) -> None:
        for group in list(self._processes.groups.values()):
            group.is_resting = self._state == RESTING and group.role.name != KEEPER
            if self._state == SERVING:
                for child in group.children:
                    child.kill_if_over_memory()
                    child.check_recycling(now)
            group.reconcile(now)
            for child in group.due_to_start(now):
                self._start(child, now)
            # A pool that was scaled to 0 stays; only one that a reload took out goes.
            if not group.children and not group.wanted and self._state in _UP and group.role not in self._plan.roles:
                del self._processes.groups[group.key]

    def _start(self, child: ChildProcess, now: float) -> None:
        try:
            child.start(now, self._close_in_child)
            _log.info("%s started, pid %d", child.name, child.pid)
        except OSError as error:
            _log.error("%s: %s; again in %.1f s", child.name, error, child.back_off(now))

    def _publish_status(self) -> None:
        """Writes the master's status to the scoreboard if it has changed."""
        pools = [pool_status(group) for group in self._processes.pools()]
        status = self._reloads.status(pools, self._away)
        if status != self._published:
            self._published = status
            self._board.publish(status)

    def _is_over(self, now: float) -> bool:
        if self._state in _UP or self._processes.pids() or self._is_keeper_needed(now):
            return False
        if owners := self._deaths.owners():
            _log.warning("the keeper did not answer for %s: their leases run out", ", ".join(owners))
        return True

    def _sleep(self, now: float) -> None:
        until = min((moment for moment in self._wake_times(now) if moment > now), default=now)
        sleeper = select.poll()
        sleeper.register(self._signals, select.POLLIN)
        for child in self._processes.all():
            # A pipe at its end is always readable: the loop would never sleep.
            if child.pipe is not None and not child.pipe.at_eof:
                sleeper.register(child.pipe, select.POLLIN | (select.POLLOUT if child.pipe.has_unsent else 0))
        sleeper.poll(ceil(max(0.0, until - monotonic()) * 1000))

    def _wake_times(self, now: float) -> Iterator[float]:
        yield from (now + _LONGEST_SLEEP, self._deadline, self._started_at + self._plan.boot_limit)
        yield from (self._notifier.next_beat, self._reloads.due_at, self._workers_gone_at + self._keeper_limit)
        for child in self._processes.all():
            yield child.start_at
            yield child.stopping_since + self._keeper_limit
            if child.pid:
                yield from child.deadlines()

    def _close_in_child(self) -> None:
        """In a forked child: closes what belongs to the master alone."""
        self._signals.close_in_child()
        self._pid_file.close_in_child()
        self._close_sockets()

    def _close_sockets(self) -> None:
        self._sockets.close()
        self._notifier.close()
        for child in self._processes.all():
            if child.pipe is not None:
                child.pipe.close()
