"""The master: one loop that handles signals, reaps children, kills overdue ones, starts new ones, and sleeps.

It opens no store, imports no user code and starts no thread, so only a bug in its own code can bring it down.

The end of a master: first its workers and servers, then the keeper, once it has brought back jobs of the dead.
"""

import logging
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

from tarry.platform import reap_children
from tarry.runtime.board.layout import QUITTING, RESTING, SERVING, STARTING, STOPPING
from tarry.runtime.board.master_status import MasterStatus
from tarry.runtime.board.scoreboard import Scoreboard
from tarry.runtime.child_process import QUIT, ChildProcess, ProcessEnd, kill_pgrp
from tarry.runtime.live_stacks import LiveStacks
from tarry.runtime.logs import handlers
from tarry.runtime.master_report import log_report
from tarry.runtime.notify import Notifier
from tarry.runtime.pidfile import LOCK_LIMIT, SUCCESSOR_LOCK_LIMIT, PidFile, is_free_within
from tarry.runtime.process_group import MAX_FAILED_STARTS, ProcessGroup
from tarry.runtime.processes import DeathReports, Processes
from tarry.runtime.reload import Reloads
from tarry.runtime.request_files import asker_path, scale_path, take_name
from tarry.runtime.role import KEEPER, WATCHER, Plan, Role
from tarry.runtime.scaling import PoolScaler, pool_status
from tarry.runtime.signal_queue import Signals, signal_name, unblock_signals
from tarry.runtime.sockets.activation import ActivationSockets
from tarry.runtime.sockets.listeners import Listeners, Sockets
from tarry.runtime.upgrades import Successor, Upgrades, remove_drafts

_STOP = (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR2, signal.SIGTERM)
# Not QUIT: two people who both run `tarry stop` do not mean a quit.
_TWICE_IS_QUIT = (signal.SIGINT, signal.SIGTERM)
_MORE_OR_FEWER = {signal.SIGTTIN: 1, signal.SIGTTOU: -1}
_HANDLED = (*_STOP, signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH, *_MORE_OR_FEWER, signal.SIGCHLD)
_IGNORED = (signal.SIGPIPE,)
_UP = (STARTING, SERVING, RESTING)

# Seconds. A kill time that a job gets while the master sleeps is seen after this time at the latest.
_LONGEST_SLEEP = 0.5
ORPHANS_LISTEN_WITHIN = 10.0
"""Seconds for which a master that follows a killed one waits for its addresses: an orphaned child closes its sockets
once it looks for its master, which it does not while it imports the app."""
_FAILED_START_GRACE = _DEATH_LIMIT = 5.0

_log = logging.getLogger("tarry.master")


class Master:
    """Keeps the plan's processes running until it is told to stop. `failure`: why the first start failed.

    on_serving: called once, when every child is ready. replan: reads the plan again for a reload; it raises TarryError
    or OSError if it cannot. Paths are used as given: make them absolute before `daemonize`. by: who starts it.
    """

    def __init__(
        self,
        plan: Plan,
        pid_file: Path,
        board_path: Path,
        on_serving: Callable[[], None] = lambda: None,
        replan: Callable[[], Plan] | None = None,
        directory: Path = Path("/"),
        by: str = "",
    ) -> None:
        self._plan, self._scale_path = plan, scale_path(pid_file)
        self._successor, self._upgrades = Successor(), Upgrades(pid_file, board_path, directory)
        self._origin = self._successor.origin(by)
        self._place, self._board_place = pid_file, board_path
        pid_file, self._board_path = self._successor.place(pid_file), self._successor.place(board_path)
        self._on_serving, self._read_plan = on_serving, replan or (lambda: plan)
        lock_limit = SUCCESSOR_LOCK_LIMIT if self._successor.is_waiting else LOCK_LIMIT
        self._signals, self._pid_file = Signals(_HANDLED, _IGNORED), PidFile(pid_file, lock_limit)
        self._listeners = Listeners(ActivationSockets(), self._successor.own_sockets)
        self._notifier = Notifier.from_environ(self._board_path)
        self._scaling, self._processes = PoolScaler(), Processes()
        self._deaths = DeathReports(self._processes)
        self._ending, self._stacks = ShutdownOrder(self._processes, self._deaths), LiveStacks(self._processes)
        self._stop_signals: set[int] = set()
        self._state = STARTING
        self._started_at = 0.0
        self._deadline = float("inf")
        self._rest_after = -1
        """Number of the last reload requested before a WINCH. A reload requested later ends the rest; -1: no WINCH."""
        self._published = MasterStatus()
        self.failure = ""

    def run(self) -> int:
        """Returns when stopped, with the exit status: 0, or 1 with `failure`. MasterError: a master already runs."""
        with self._signals, self._pid_file:
            unblock_signals()
            if not self._successor.is_waiting:
                remove_drafts(self._place, self._board_place)
            roles = self._plan.roles
            self._board = Scoreboard(self._board_path, [role.cells for role in roles for _ in range(role.count)])
            self._reloads = Reloads(
                self._processes,
                self._board,
                self._notifier,
                self._read_plan,
                self._listeners,
                self._inherit,
                self._origin,
            )
            try:
                # Before the first child, so that a failure to bind fails the start.
                patience = ORPHANS_LISTEN_WITHIN if self._pid_file.was_left else 0.0
                self._listeners.open(self._plan.listens, self._plan.backlog, patience)
                self._make_groups()
                self._loop()
                # A late signal must not kill the master before its files are removed.
                self._signals.ignore()
            finally:
                self._listeners.close()
                self._successor.report_failure(self.failure)
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
            if self._upgrades.advance(now, self._plan.boot_limit):
                self._hand_over()
            self._advance_stop(now)
            self._stacks.advance(now)
            if self._state == SERVING and not self._reloads.is_running:
                self._scaling.follow_servers(self._processes.groups.values(), now)
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
                state = "reloading" if self._reloads.is_running else self._state
                if not self._upgrades.begin_if_requested(state, self._listeners, self._notifier.environ):
                    self._reloads.request(take_name(asker_path(self._place)) or "")
            case signal.SIGUSR1:
                log_report(self._board_path)
            case signal.SIGWINCH:
                self._rest()
            case signal.SIGTTIN | signal.SIGTTOU:
                pools = self._processes.pools() if self._state in _UP else []
                self._scaling.change_by_hand(pools, _MORE_OR_FEWER[signal.Signals(number)], self._scale_path, now)
            case signal.SIGCHLD:
                pass  # every pass of the loop reaps
            case _:
                self._handle_stop(number, now)

    def _handle_stop(self, number: int, now: float) -> None:
        _log.info("%s received", signal_name(number))
        self._upgrades.dismiss(f"the master got {signal_name(number)}")
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
            self._upgrades.dismiss("the master got WINCH")
            self._set_state(RESTING)

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
            elif "stopping" in message:
                child.note_stop()
            elif "failed" in message:
                self._on_boot_failure(child, str(message["failed"]), bool(message.get("setting")))
            elif "returned" in message:
                self._deaths.confirm(str(message["returned"]))
            elif "away" in message:
                self._ending.away = str(message["away"])
            elif "backlog" in message and child.is_keeper and self._state == SERVING and not self._reloads.is_running:
                self._scaling.follow_backlogs(message["backlog"], self._processes.pools(), monotonic())
            elif "changed" in message and child.role.name == WATCHER and self._state in (STARTING, SERVING):
                self._reloads.note_change(str(message["changed"]))
            else:
                self._stacks.handle(child, message, monotonic())

    def _on_ready(self, child: ChildProcess) -> None:
        child.is_ready = True
        _log.info("%s ready, pid %d", child.name, child.pid)
        if group := self._processes.group_of(child):
            group.failed_starts = 0
        if child.is_keeper:
            self._deaths.resend([child])

    def _on_boot_failure(self, child: ChildProcess, text: str, is_setting: bool) -> None:
        child.start_error = text if is_setting else f"{child.name} could not start: {text}"
        _log.error("%s", child.start_error)
        self._give_up(child.start_error)
        if child is self._processes.canary:
            self._reloads.fail(child.start_error)

    def _reap(self, now: float) -> None:
        ours = {child.pid: child for child in self._processes.all() if child.pid}
        for pid, status in reap_children(ours, kill_pgrp):
            self._upgrades.on_exit(pid)
            if child := ours.get(pid):
                self._receive(child)  # its last messages may explain its end
                self._handle_exit(child, child.read_end(status), now)

    def _handle_exit(self, child: ChildProcess, end: ProcessEnd, now: float) -> None:
        pid, why, expected = child.pid, end.text, bool(child.stopping_since) or end.is_graceful
        was_ready, message = child.is_ready, child.record_exit(end)
        delay = child.back_off(now)
        again = f"; another in {delay:.1f} s" if self._will_restart(child, now) else ""
        level = logging.INFO if expected else logging.WARNING
        _log.log(level, "%s ended, pid %d: %s, running jobs: %d%s", child.name, pid, why, len(message["on"]), again)
        start_error = child.start_error or f"{child.name} ended before it was ready: {why}; the log may say more"
        # Not for one that was ready: a job that kills its worker may do so before the others are ready.
        if not was_ready and not child.stopping_since:
            self._give_up(start_error)
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
        for child in [child for child in self._processes.all() if child.pid]:
            child.interrupt_if_silent(now)
            child.kill_if_overdue(now)
            self._kill_late(child, now)

    def _kill_late(self, child: ChildProcess, now: float) -> None:
        """Kills a child that is not ready in time, or, after a reload, takes too long over its last jobs."""
        if self._state in (SERVING, RESTING):
            child.kill_if_not_ready(now, self._plan.boot_limit)
        if self._state == SERVING:
            child.kill_if_slow_to_end(now, self._plan.reload_timeout)

    def _check_boot(self, now: float) -> None:
        if self._state != STARTING:
            return
        late = [child.name for child in self._processes.all() if not child.is_ready]
        if not late and all(group.is_complete for group in self._processes.groups.values()):
            if not self._take_over():
                return
            self._set_state(SERVING)
            self._on_serving()
            if self._rest_after >= 0:
                self._set_state(RESTING)
        elif late and now >= self._started_at + self._plan.boot_limit:
            self._give_up(f"{', '.join(late)} not ready within {self._plan.boot_limit:g} s")

    def _take_over(self) -> bool:
        """Takes the place of the master that started this one, if any. False: that one does not make room."""
        if not self._successor.is_waiting:
            return True
        # A master that has died makes no room, and needs none. As it dies, the lock goes after the socket.
        if not self._successor.take_over() and not is_free_within(self._place, _DEATH_LIMIT):
            self._give_up("the master that was to be replaced did not make room")
            return False
        self._pid_file.move_to(self._place)
        self._board.move_to(self._board_place)
        self._board_path = self._notifier.board = self._board_place
        self._listeners.own()
        return True

    def _hand_over(self) -> None:
        """The new master serves: this one ends, with its jobs."""
        _log.info("upgrade: the new master serves, pid %d", self._upgrades.pid)
        self._board.step_aside()
        self._listeners.disown()
        self._notifier.hand_over(self._upgrades.pid)
        self._upgrades.let_go()
        self._stop()

    def _give_up(self, failure: str) -> None:
        """Stops the master if it is still starting. Later a child that cannot start stops nothing."""
        if self._state == STARTING:
            self.failure, self._ending.is_failure = failure, True
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
            if self._ending.away:
                _log.warning("stopping while the store is away, which is waited for: %s", self._ending.away)

    def _quit(self) -> None:
        if self._state != QUITTING:
            self._upgrades.hurry()
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
        self._ending.advance(self._state, now)

    def _will_restart(self, child: ChildProcess, now: float) -> bool:
        if child.stopping_since or self._processes.group_of(child) is None:
            return False
        return self._state in _UP or (child.is_keeper and self._ending.is_keeper_needed(now))

    def _reconcile(self, now: float) -> None:
        for child in self._processes.reconcile(now, self._state):
            self._start(child, now)
        for group in list(self._processes.groups.values()):
            # A pool that was scaled to 0 stays; only one that a reload took out goes.
            if not group.children and not group.wanted and self._state in _UP and group.role not in self._plan.roles:
                del self._processes.groups[group.key]

    def _start(self, child: ChildProcess, now: float) -> None:
        try:
            child.start(now, self._inherit)
            _log.info("%s started, pid %d", child.name, child.pid)
        except OSError as error:
            _log.error("%s: %s; again in %.1f s", child.name, error, child.back_off(now))

    def _publish_status(self) -> None:
        """Writes the master's status to the scoreboard if it has changed."""
        pools = [pool_status(group) for group in self._processes.pools()]
        status = self._upgrades.describe(self._reloads.status(pools, self._ending.away))
        if status != self._published:
            self._published = status
            self._board.publish(status)

    def _is_over(self, now: float) -> bool:
        is_up = self._state in _UP or self._upgrades.is_ending
        if is_up or self._processes.pids() or self._ending.is_keeper_needed(now):
            return False
        if owners := self._deaths.owners():
            _log.warning("the keeper did not answer for %s: their leases run out", ", ".join(owners))
        return True

    def _sleep(self, now: float) -> None:
        until = min((moment for moment in self._wake_times(now) if moment > now), default=now)
        self._processes.wait_for_news(self._signals.fileno(), max(0.0, until - monotonic()))

    def _wake_times(self, now: float) -> Iterator[float]:
        yield from (now + _LONGEST_SLEEP, self._deadline, self._started_at + self._plan.boot_limit)
        yield from (self._notifier.next_beat, self._reloads.due_at)
        yield from (*self._ending.wake_times(), *self._stacks.wake_times())
        for child in self._processes.all():
            yield child.start_at
            if child.pid:
                yield from child.deadlines()

    def _inherit(self, role: Role) -> Sockets:
        """In a forked child: closes what belongs to the master alone. Returns the sockets at which the role accepts."""
        self._pid_file.close_in_child()
        self._close_sockets()
        return self._listeners.close_in_child(role.listens)

    def _close_sockets(self) -> None:
        self._notifier.close()
        self._upgrades.close()
        self._successor.close()
        for child in self._processes.all():
            if child.pipe is not None:
                child.pipe.close()


_KEEPER_LIMIT = 5.0  # Seconds for the keeper to confirm all dead processes, and, in a forced stop, to end.
_AWAY_LIMIT = 1.0  # The same while the store is away.


class ShutdownOrder:
    """Times are of the monotonic clock."""

    def __init__(self, processes: Processes, deaths: DeathReports) -> None:
        self._processes, self._deaths = processes, deaths
        self._workers_gone_at = 0.0
        self.away = ""
        """Why the keeper cannot reach the store; empty: it can."""
        self.is_failure = False
        """True: the start has failed, so the keeper has nothing to do."""

    def advance(self, state: str, now: float) -> None:
        """Asks the processes that are to end now to do so, or kills them."""
        for group in self._processes.worker_groups():
            group.wanted = 0
        for child in self._processes.workers():
            if state == QUITTING:
                child.kill(QUIT)
            else:
                child.request_stop(now)
        self._workers_gone_at = self._workers_gone_at or (0.0 if self._processes.workers() else now)
        if not self.is_keeper_needed(now):
            self._stop_keepers(state, now)

    def is_keeper_needed(self, now: float) -> bool:
        """True while workers live, and until the keeper has confirmed all deaths or its time is over."""
        if self.is_failure:
            return False
        return bool(self._processes.workers()) or (
            bool(self._deaths.owners()) and now < self._workers_gone_at + self._keeper_limit
        )

    def wake_times(self) -> Iterator[float]:
        """When `advance` may have something to do."""
        yield self._workers_gone_at + self._keeper_limit
        yield from (child.stopping_since + self._keeper_limit for child in self._processes.all())

    def _stop_keepers(self, state: str, now: float) -> None:
        for group in self._processes.groups.values():
            if group.role.name == KEEPER:
                group.wanted = 0
        for child in self._processes.all():
            late = 0 < child.stopping_since <= now - self._keeper_limit
            if child.pid and child.is_keeper and late and (state == QUITTING or self.away):
                child.kill(QUIT)

    @property
    def _keeper_limit(self) -> float:
        return _AWAY_LIMIT if self.away else _KEEPER_LIMIT
