"""The master: one loop that handles what was signalled, reaps, kills what is overdue, keeps the crews, sleeps.

It opens no store, imports no user code and starts no thread, so that nothing but its own code can bring it down.
"""

import logging
import select
import signal
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from time import monotonic, time
from uuid import UUID

from tarry.errors import MasterError
from tarry.runtime.child_process import LATE, QUIT, Seat, exit_reason, reaped
from tarry.runtime.logs import handlers
from tarry.runtime.master_status import Notice
from tarry.runtime.notify import Notify
from tarry.runtime.pidfile import PidFile
from tarry.runtime.pipe import Message
from tarry.runtime.process_group import TRIES, Crew
from tarry.runtime.reload import TURNING, Reload, spoken
from tarry.runtime.reload_throttle import Pace
from tarry.runtime.report import report
from tarry.runtime.role import KEEPER, WATCHER, Plan
from tarry.runtime.scale_request import asked, scale_path
from tarry.runtime.scaling import Scaling, pool_status
from tarry.runtime.scoreboard import (
    QUITTING,
    RESTING,
    SERVING,
    STARTING,
    STOPPING,
    Scoreboard,
    read,
)
from tarry.runtime.signals import Signals, let_through
from tarry.runtime.signals import spoken as named
from tarry.runtime.socket_activation import Inherited

_STOP = (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR2, signal.SIGTERM)
_TWICE_IS_QUIT = (signal.SIGINT, signal.SIGTERM)
_MORE_OR_FEWER = {signal.SIGTTIN: 1, signal.SIGTTOU: -1}
_HANDLED = (*_STOP, signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH, *_MORE_OR_FEWER, signal.SIGCHLD)
_IGNORED = (signal.SIGPIPE,)
_UP = (STARTING, SERVING, RESTING)

_LONGEST_SLEEP = 0.5
"""Seconds. A limit that a job got while we slept is seen no later."""
_KEEPER_LIMIT = 5.0
"""Seconds for the keeper to answer for all who are gone, and, when forced, to end."""
_AWAY_LIMIT = 1.0
"""The same while the store is away."""
_FAILED_START_GRACE = 5.0
_LONGEST_CHANGE = 1000
"""Characters of a line that says what changed."""

_log = logging.getLogger("tarry.master")


class Master:
    """Keeps the plan's processes until it is told to stop. `failure`: why the first start came to nothing.

    on_serving: called once, when every child has said ready. replan: reads the plan again for a reload; it may raise
    what says why it cannot (TarryError, OSError). Paths are used as given: make them absolute before `daemonize`.
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
        self._on_serving, self._replan = on_serving, replan or (lambda: plan)
        self._signals, self._pid_file = Signals(_HANDLED, _IGNORED), PidFile(pid_file)
        self._inherited, self._notify = Inherited(), Notify.from_environ(board_path)
        self._scaling, self._pace = Scaling(), Pace()
        self._crews: dict[tuple[str, str], Crew] = {}
        self._owed: dict[str, Message] = {}
        self._heard: set[int] = set()
        self._state = STARTING
        self._began = 0.0
        self._deadline = float("inf")
        self._alone = 0.0
        self._generation = self._asked = self._done = 0
        self._rest_after = -1
        """The last reload that was asked for before a WINCH: one that was asked for later ends the rest."""
        self._reload: Reload | None = None
        self._trouble = self._away = ""
        self._told = Notice()
        self.failure = ""

    def run(self) -> int:
        """Until stopped. Answers the exit status: 0, or 1 with `failure`. MasterError: a master is running already."""
        with self._signals, self._pid_file:
            let_through()
            roles = self._plan.roles
            self._board = Scoreboard(self._board_path, [role.cells for role in roles for _ in range(role.count)])
            try:
                self._make_crews()
                self._loop()
                self._signals.ignore()
            finally:
                self._forget_world()
                self._board.remove()
        return 1 if self.failure else 0

    def _make_crews(self) -> None:
        self._generation = 1
        crews = [Crew(role, self._board, self._generation) for role in self._plan.roles]
        self._crews = {crew.key: crew for crew in crews}
        self._began = monotonic()
        self._tell()  # before the first fork: somebody may ask already

    def _loop(self) -> None:
        while True:
            now = monotonic()
            for number in self._signals.take():
                self._handle(number, now)
            self._listen()
            self._reap(now)
            self._kill_overdue(now)
            self._check_boot(now)
            self._go_on_reloading(now)
            self._go_on_stopping(now)
            self._tend(now)
            self._tell()
            self._notify.beat(now)
            if self._over(now):
                return
            self._sleep(now)

    # What came in

    def _handle(self, number: int, now: float) -> None:
        match number:
            case signal.SIGHUP:
                handlers.reopen()
                self._asked += 1
            case signal.SIGUSR1:
                self._report()
            case signal.SIGWINCH:
                self._rest()
            case signal.SIGTTIN | signal.SIGTTOU:
                self._change_count(_MORE_OR_FEWER[signal.Signals(number)])
            case signal.SIGCHLD:
                pass  # every turn reaps
            case _:
                self._handle_stop(number, now)

    def _handle_stop(self, number: int, now: float) -> None:
        _log.info("%s received", named(number))
        if number in self._heard and number in _TWICE_IS_QUIT:
            self._quit()
        elif number == signal.SIGTERM:
            self._deadline = min(self._deadline, now + self._plan.term_grace)
        self._heard.add(number)
        self._stop()

    def _report(self) -> None:
        try:
            board = read(self._board_path)
        except MasterError as error:
            _log.error("no status: %s", error)
        else:
            for line in report(board, time()) if board else ():
                _log.info("%s", line)

    def _rest(self) -> None:
        """The workers end gracefully, and the master waits for a reload; a start is completed first."""
        self._rest_after = self._asked
        if self._state == SERVING:
            self._enter(RESTING)

    def _change_count(self, by: int) -> None:
        """By one, of the first pool; or what `tarry scale` left beside the pid file."""
        crews = {crew.role.pool: crew for crew in self._pools()}
        pool, wanted = asked(self._scale_path) or (next(iter(crews), ""), None)
        if pool in crews and self._state in _UP:
            self._scaling.change(crews[pool], by, wanted, monotonic())

    def _listen(self) -> None:
        for seat in self._seats():
            self._hear(seat)

    def _hear(self, seat: Seat) -> None:
        if seat.link is None:
            return
        seat.link.flush()
        for message in seat.link.lines():
            if message.get("ready"):
                self._now_ready(seat)
            elif "failed" in message:
                self._boot_failed(seat, str(message["failed"]))
            elif "returned" in message:
                self._owed.pop(str(message["returned"]), None)
            elif "away" in message:
                self._away = str(message["away"])
            elif "backlog" in message and seat.keeper and self._state == SERVING and self._reload is None:
                self._scaling.heard(message["backlog"], self._pools(), monotonic())
            elif "changed" in message and seat.role.name == WATCHER and self._state in (STARTING, SERVING):
                self._changed(str(message["changed"]))

    def _changed(self, what: str) -> None:
        pause = self._pace.changed(monotonic())
        when = f" in {pause:.0f} s, since each brings the next" if pause else ""
        _log.info("changed, so a reload is wanted%s: %s", when, what[:_LONGEST_CHANGE])

    def _now_ready(self, seat: Seat) -> None:
        seat.ready = True
        _log.info("%s ready, pid %d", seat.name, seat.pid)
        if crew := self._crew_of(seat):
            crew.misses = 0
        if seat.keeper:
            self._tell_keeper(seat)

    def _boot_failed(self, seat: Seat, text: str) -> None:
        _log.error("%s could not start: %s", seat.name, text)
        seat.trouble = f"{seat.name} could not start: {text}"
        self._give_up(seat.trouble)
        if self._reload is not None and seat is self._reload.canary:
            self._reload.fail(seat.trouble)

    def _reap(self, now: float) -> None:
        ours = {seat.pid: seat for seat in self._seats() if seat.pid}
        for pid, status in reaped(ours):
            if seat := ours.get(pid):
                self._hear(seat)  # its last words explain its end
                self._bury(seat, exit_reason(status), now)

    def _bury(self, seat: Seat, why: str, now: float) -> None:
        pid, expected = seat.pid, bool(seat.asked) or why == exit_reason(0)
        was_ready, notice = seat.ready, seat.bury(why)
        delay = seat.postpone(now)
        again = f"; another in {delay:.1f} s" if self._wanted(seat, now) else ""
        level = logging.INFO if expected else logging.WARNING
        _log.log(level, "%s ended, pid %d: %s, at %d jobs%s", seat.name, pid, why, len(notice["on"]), again)
        trouble = seat.trouble or f"{seat.name} ended with {why} before it was ready; the log may say more"
        if not seat.asked:
            self._give_up(f"{seat.name} ended with {why} before the start was complete; the log may say more")
        if self._reload is not None and seat is self._reload.canary:
            seat.ready = was_ready
            self._reload.canary_ended(why)
        elif (crew := self._crew_of(seat)) and not was_ready and not seat.asked:
            crew.missed(trouble)
            if crew.misses == TRIES:
                _log.error("%s: %d processes in a row could not begin; trying on, slowly", seat.name, TRIES)
        if seat.keeper:
            for other in self._keepers():
                self._tell_keeper(other)
        elif notice["gone"]:
            self._owe(notice)

    def _owe(self, notice: Message) -> None:
        self._owed[notice["gone"]] = notice
        for seat in self._keepers():
            _say(seat, notice)

    def _tell_keeper(self, seat: Seat) -> None:
        for message in self._owed.values():
            _say(seat, message)

    # What is to be done

    def _kill_overdue(self, now: float) -> None:
        for seat in self._seats():
            if seat.pid:
                for cell in seat.kill_if_overdue(now):
                    _log.error(
                        "%s killed, pid %d: job %s (%s) still ran %.1f s after its start, %s",
                        *(seat.name, seat.pid, UUID(bytes=cell.id), cell.task, now - cell.since, cell.why),
                        extra={"tarry": {"job": str(UUID(bytes=cell.id)), "task": cell.task, "worker": seat.name}},
                    )
                self._kill_late(seat, now)

    def _kill_late(self, seat: Seat, now: float) -> None:
        """One that is not ready in time, and after a reload one that takes too long over its last jobs."""
        if self._state in (SERVING, RESTING) and not seat.ready and now >= seat.born + self._plan.boot_limit:
            seat.trouble = f"{seat.name} was not ready within {self._plan.boot_limit:g} s"
            seat.kill(LATE)
        if self._state == SERVING and seat.asked and 0 < self._plan.reload_timeout <= now - seat.asked:
            seat.kill(LATE)

    def _check_boot(self, now: float) -> None:
        if self._state != STARTING:
            return
        late = [seat.name for seat in self._seats() if not seat.ready]
        if not late and all(crew.settled for crew in self._crews.values()):
            self._enter(SERVING)
            self._on_serving()
            if self._rest_after >= 0:
                self._enter(RESTING)
        elif late and now >= self._began + self._plan.boot_limit:
            self._give_up(f"{', '.join(late)} not ready within {self._plan.boot_limit:g} s")

    def _give_up(self, failure: str) -> None:
        """The first start failed; afterwards, and when told to stop, a child that cannot start ends nothing."""
        if self._state == STARTING:
            self.failure = failure
            self._deadline = monotonic() + _FAILED_START_GRACE
            self._stop()

    def _go_on_reloading(self, now: float) -> None:
        if self._state not in (SERVING, RESTING):
            return
        self._asked += self._state == SERVING and self._pace.take(now)
        if self._reload is None and self._asked > self._done:
            self._reload = Reload(self._asked, self._generation + 1, self._board)
            _log.info("reload: reading the configuration")
            self._notify.reloading()
            self._reload.begin(self._replan, now, self._forget)
        if self._reload is not None:
            self._carry_on(self._reload, now)

    def _carry_on(self, reload: Reload, now: float) -> None:
        if reload.check_canary(now):
            _log.info("reload: generation %d takes over", reload.generation)
            self._plan = reload.turn(self._crews, self._plan)
            if self._state == RESTING and reload.asked > self._rest_after:
                self._enter(SERVING)
        if reload.check_turn(self._crews):
            self._plan = reload.go_back(self._crews)
        if reload.over and self._done < reload.asked:
            self._end_reload(reload)
        # The canary is reaped first.
        if reload.over and (reload.canary is None or not reload.canary.pid):
            reload.close()
            self._reload = None

    def _end_reload(self, reload: Reload) -> None:
        self._done, self._trouble = reload.asked, reload.trouble
        if reload.trouble:
            _log.error("reload failed, and what ran goes on: %s", reload.trouble)
        else:
            self._generation = reload.generation
            _log.info("reloaded: generation %d serves", self._generation)
        self._notify.ready(reload.trouble)

    def _stop(self) -> None:
        if self._state in _UP:
            self._enter(STOPPING)
            if self._away:
                _log.warning("stopping while the store is away, which is waited for: %s", self._away)

    def _quit(self) -> None:
        if self._state != QUITTING:
            self._enter(QUITTING)

    def _enter(self, state: str) -> None:
        self._state = state
        self._board.state(state)
        self._notify.entered(state, self.failure)
        _log.info("%s", state)

    def _go_on_stopping(self, now: float) -> None:
        if self._state in _UP:
            return
        if now >= self._deadline:
            self._quit()
        for crew in self._worker_crews():
            crew.wanted = 0
        for seat in self._workers():
            if self._state == QUITTING:
                seat.kill(QUIT)
            else:
                seat.ask(now)
        self._alone = self._alone or (0.0 if self._workers() else now)
        if not self._keeper_wanted(now):
            self._dismiss_keepers(now)

    def _dismiss_keepers(self, now: float) -> None:
        for crew in self._crews.values():
            if crew.role.name == KEEPER:
                crew.wanted = 0
        for seat in self._seats():
            late = 0 < seat.asked <= now - self._keeper_limit
            if seat.pid and seat.keeper and late and (self._state == QUITTING or self._away):
                seat.kill(QUIT)

    @property
    def _keeper_limit(self) -> float:
        return _AWAY_LIMIT if self._away else _KEEPER_LIMIT

    def _keeper_wanted(self, now: float) -> bool:
        """While jobs are run, and until it has answered for all who are gone; but not for ever."""
        if self.failure:
            return False
        return bool(self._workers()) or (bool(self._owed) and now < self._alone + self._keeper_limit)

    def _wanted(self, seat: Seat, now: float) -> bool:
        if seat.asked or self._crew_of(seat) is None:
            return False
        return self._state in _UP or (seat.keeper and self._keeper_wanted(now))

    def _tend(self, now: float) -> None:
        for crew in list(self._crews.values()):
            crew.resting = self._state == RESTING and crew.role.name != KEEPER
            if self._state == SERVING:
                for seat in crew.seats:
                    seat.kill_if_greedy()
                    seat.wear(now)
            crew.tend(now)
            for seat in crew.vacant(now):
                self._fill(seat, now)
            if not crew.seats and not crew.wanted and self._state in _UP and crew.role not in self._plan.roles:
                del self._crews[crew.key]

    def _fill(self, seat: Seat, now: float) -> None:
        try:
            seat.fill(now, self._forget)
            _log.info("%s started, pid %d", seat.name, seat.pid)
        except OSError as error:
            _log.error("%s: %s; again in %.1f s", seat.name, error, seat.postpone(now))

    def _tell(self) -> None:
        """What readers of the scoreboard learn; written when it has changed."""
        reload = self._reload
        stage = "" if reload is None or reload.over else reload.stage
        if stage == TURNING:
            stage = spoken(list(self._crews.values()))
        pools = [pool_status(crew) for crew in self._pools()]
        notice = Notice(self._generation, self._asked, self._done, stage, self._trouble, pools, self._away)
        if notice != self._told:
            self._told = notice
            self._board.tell(notice)

    def _over(self, now: float) -> bool:
        if self._state in _UP or self._pids() or self._keeper_wanted(now):
            return False
        if self._owed:
            _log.warning("the keeper did not answer for %s: their leases run out", ", ".join(self._owed))
        return True

    # Who is there

    def _seats(self) -> list[Seat]:
        seats = [seat for crew in self._crews.values() for seat in crew.seats]
        canary = None if self._reload is None else self._reload.canary
        return seats if canary is None else [*seats, canary]

    def _pids(self) -> list[int]:
        return [seat.pid for seat in self._seats() if seat.pid]

    def _pools(self) -> list[Crew]:
        return [crew for crew in self._crews.values() if crew.role.pool]

    def _worker_crews(self) -> list[Crew]:
        return [crew for crew in self._crews.values() if crew.role.name != KEEPER]

    def _workers(self) -> list[Seat]:
        return [seat for seat in self._seats() if seat.pid and not seat.keeper]

    def _keepers(self) -> list[Seat]:
        return [seat for seat in self._seats() if seat.keeper and seat.ready]

    def _crew_of(self, seat: Seat) -> Crew | None:
        return next((crew for crew in self._crews.values() if seat in crew.seats), None)

    # In between

    def _sleep(self, now: float) -> None:
        until = min((alarm for alarm in self._alarms(now) if alarm > now), default=now)
        sleeper = select.poll()
        sleeper.register(self._signals, select.POLLIN)
        for seat in self._seats():
            if seat.link is not None and not seat.link.ended:
                sleeper.register(seat.link, select.POLLIN | (select.POLLOUT if seat.link.unsent else 0))
        sleeper.poll(ceil(max(0.0, until - monotonic()) * 1000))

    def _alarms(self, now: float) -> Iterator[float]:
        yield from (now + _LONGEST_SLEEP, self._deadline, self._began + self._plan.boot_limit, self._notify.due)
        yield self._pace.due
        yield self._alone + self._keeper_limit
        for seat in self._seats():
            yield seat.due
            yield seat.asked + self._keeper_limit
            if seat.pid:
                yield from seat.alarms()

    def _forget(self) -> None:
        """For a forked child: what is the master's alone."""
        self._signals.forget()
        self._pid_file.forget()
        self._forget_world()

    def _forget_world(self) -> None:
        self._inherited.close()
        self._notify.close()
        for seat in self._seats():
            if seat.link is not None:
                seat.link.close()


def _say(keeper: Seat, message: Message) -> None:
    if keeper.link is not None:
        keeper.link.send(message)
