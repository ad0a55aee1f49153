"""The master: one loop that handles what was signalled, reaps, kills what is overdue, restores the counts, sleeps.

It opens no store, imports no user code and starts no thread, so that nothing but its own code can bring it down.
"""

import logging
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from pathlib import Path
from time import monotonic, time

from tarry.runtime.link import Message
from tarry.runtime.pidfile import PidFile
from tarry.runtime.report import report
from tarry.runtime.role import Role
from tarry.runtime.scoreboard import QUITTING, SERVING, STARTING, STOPPING, Scoreboard, read
from tarry.runtime.seat import QUIT, Seat, exit_reason, reaped
from tarry.runtime.signals import Signals, let_through, spoken

_STOP = (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR2, signal.SIGTERM)
_TWICE_IS_QUIT = (signal.SIGINT, signal.SIGTERM)
_HANDLED = (*_STOP, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
# TTIN and TTOU would stop the process.
_IGNORED = (signal.SIGPIPE, signal.SIGTTIN, signal.SIGTTOU)

_LONGEST_SLEEP = 1.0
_KEEPER_LIMIT = 5.0
"""Seconds for the keeper to answer for all who are gone, and, when forced, to end."""
_FAILED_START_GRACE = 5.0

_log = logging.getLogger("tarry.master")


class Master:
    """Keeps the roles' counts of processes until it is told to stop. `failure`: why the first start came to nothing.

    term_grace: seconds that TERM leaves the workers. on_serving: called once, when every child has said ready.
    boot_limit: seconds in which they have to. Paths are used as given: make them absolute before `daemonize`.
    """

    def __init__(
        self,
        roles: Sequence[Role],
        pid_file: Path,
        board_path: Path,
        term_grace: float,
        on_serving: Callable[[], None] = lambda: None,
        boot_limit: float = 60.0,
    ) -> None:
        self._roles, self._board_path, self._term_grace = roles, board_path, term_grace
        self._on_serving, self._boot_limit = on_serving, boot_limit
        self._signals, self._pid_file = Signals(_HANDLED, _IGNORED), PidFile(pid_file)
        self._seats: list[Seat] = []
        self._owed: dict[str, Message] = {}
        self._heard: set[int] = set()
        self._state = STARTING
        self._began = 0.0
        self._deadline = float("inf")
        self._alone = 0.0
        self.failure = ""

    def run(self) -> int:
        """Until stopped. Answers the exit status: 0, or 1 with `failure`. MasterError: a master is running already."""
        with self._signals, self._pid_file:
            let_through()
            cells = max(role.cells for role in self._roles)
            self._board = Scoreboard(self._board_path, sum(role.count for role in self._roles), cells)
            try:
                self._take_seats()
                self._loop()
            finally:
                self._forget_children()
                self._board.remove()
        return 1 if self.failure else 0

    def _take_seats(self) -> None:
        places = [(role, number) for role in self._roles for number in range(1, role.count + 1)]
        self._seats = [Seat(role, number, self._board.slot(n)) for n, (role, number) in enumerate(places)]
        self._began = monotonic()

    def _loop(self) -> None:
        while True:
            now = monotonic()
            for number in self._signals.take():
                self._handle(number, now)
            self._listen()
            self._reap(now)
            self._kill_overdue(now)
            self._check_boot(now)
            self._go_on_stopping(now)
            self._fill(now)
            if self._over(now):
                return
            self._sleep(now)

    # What came in

    def _handle(self, number: int, now: float) -> None:
        match number:
            case signal.SIGHUP:
                _log.warning("HUP: reload is not part of this release: use `tarry restart`")
            case signal.SIGUSR1:
                self._report()
            case signal.SIGCHLD:
                pass  # every turn reaps
            case _:
                self._handle_stop(number, now)

    def _handle_stop(self, number: int, now: float) -> None:
        _log.info("%s received", spoken(number))
        if number in self._heard and number in _TWICE_IS_QUIT:
            self._quit()
        elif number == signal.SIGTERM:
            self._deadline = min(self._deadline, now + self._term_grace)
        self._heard.add(number)
        self._stop()

    def _report(self) -> None:
        if board := read(self._board_path):
            for line in report(board, time()):
                _log.info("%s", line)

    def _listen(self) -> None:
        for seat in self._seats:
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

    def _now_ready(self, seat: Seat) -> None:
        seat.ready = True
        _log.info("%s ready, pid %d", seat.name, seat.pid)
        if seat.keeper:
            for message in self._owed.values():
                _tell(seat, message)

    def _boot_failed(self, seat: Seat, text: str) -> None:
        _log.error("%s could not start: %s", seat.name, text)
        self._give_up(f"{seat.name} could not start: {text}")

    def _reap(self, now: float) -> None:
        ours = {seat.pid: seat for seat in self._seats if seat.pid}
        for pid, status in reaped(ours):
            if seat := ours.get(pid):
                self._hear(seat)  # its last words explain its end
                self._bury(seat, exit_reason(status), now)

    def _bury(self, seat: Seat, why: str, now: float) -> None:
        pid, expected = seat.pid, self._state in (STOPPING, QUITTING) or why == exit_reason(0)
        notice = seat.bury(why)
        delay = seat.postpone(now)
        again = f"; another in {delay:.1f} s" if self._wanted(seat, now) else ""
        level = logging.INFO if expected else logging.WARNING
        _log.log(level, "%s ended, pid %d: %s, at %d jobs%s", seat.name, pid, why, len(notice["on"]), again)
        self._give_up(f"{seat.name} ended with {why} before the start was complete; the log may say more")
        if notice["gone"] and not seat.keeper:
            self._owe(notice)

    def _owe(self, notice: Message) -> None:
        self._owed[notice["gone"]] = notice
        for seat in self._seats:
            if seat.keeper and seat.ready:
                _tell(seat, notice)

    # What is to be done

    def _kill_overdue(self, now: float) -> None:
        for seat in self._seats:
            if seat.pid:
                for cell in seat.kill_if_overdue(now):
                    _log.error(
                        "%s killed, pid %d: job %s (%s) still ran %.1f s after its start, past its time",
                        *(seat.name, seat.pid, cell.id.hex(), cell.task, now - cell.since),
                    )

    def _check_boot(self, now: float) -> None:
        if self._state != STARTING:
            return
        late = [seat.name for seat in self._seats if not seat.ready]
        if not late:
            self._enter(SERVING)
            self._on_serving()
        elif now >= self._began + self._boot_limit:
            self._give_up(f"{', '.join(late)} not ready within {self._boot_limit:g} s")

    def _give_up(self, failure: str) -> None:
        """The first start failed; afterwards, and when told to stop, a child that cannot start ends nothing."""
        if self._state == STARTING:
            self.failure = failure
            self._deadline = monotonic() + _FAILED_START_GRACE
            self._stop()

    def _stop(self) -> None:
        if self._state in (STARTING, SERVING):
            self._enter(STOPPING)

    def _quit(self) -> None:
        if self._state != QUITTING:
            self._enter(QUITTING)

    def _enter(self, state: str) -> None:
        self._state = state
        self._board.state(state)
        _log.info("%s", state)

    def _go_on_stopping(self, now: float) -> None:
        if self._state in (STARTING, SERVING):
            return
        if now >= self._deadline:
            self._quit()
        for seat in self._workers():
            if self._state == QUITTING:
                seat.kill(QUIT)
            else:
                seat.ask(now)
        self._alone = self._alone or (0.0 if self._workers() else now)
        if not self._keeper_wanted(now):
            self._dismiss_keepers(now)

    def _dismiss_keepers(self, now: float) -> None:
        for seat in self._seats:
            if seat.pid and seat.keeper:
                seat.ask(now)
                if self._state == QUITTING and now >= seat.asked + _KEEPER_LIMIT:
                    seat.kill(QUIT)

    def _keeper_wanted(self, now: float) -> bool:
        """While jobs are run, and until it has answered for all who are gone; but not for ever."""
        if self.failure:
            return False
        return bool(self._workers()) or (bool(self._owed) and now < self._alone + _KEEPER_LIMIT)

    def _workers(self) -> list[Seat]:
        return [seat for seat in self._seats if seat.pid and not seat.keeper]

    def _wanted(self, seat: Seat, now: float) -> bool:
        return self._state in (STARTING, SERVING) or (seat.keeper and self._keeper_wanted(now))

    def _fill(self, now: float) -> None:
        for seat in self._seats:
            if not seat.pid and seat.due <= now and self._wanted(seat, now):
                try:
                    seat.fill(now, self._forget)
                    _log.info("%s started, pid %d", seat.name, seat.pid)
                except OSError as error:
                    _log.error("%s: %s; again in %.1f s", seat.name, error, seat.postpone(now))

    def _over(self, now: float) -> bool:
        if self._state in (STARTING, SERVING) or any(self._wanted(seat, now) or seat.pid for seat in self._seats):
            return False
        if self._owed:
            _log.warning("the keeper did not answer for %s: their leases run out", ", ".join(self._owed))
        return True

    # In between

    def _sleep(self, now: float) -> None:
        until = min((alarm for alarm in self._alarms(now) if alarm > now), default=now)
        sleeper = select.poll()
        sleeper.register(self._signals, select.POLLIN)
        for seat in self._seats:
            if seat.link is not None and not seat.link.ended:
                sleeper.register(seat.link, select.POLLIN | (select.POLLOUT if seat.link.unsent else 0))
        sleeper.poll(ceil(max(0.0, until - monotonic()) * 1000))

    def _alarms(self, now: float) -> Iterator[float]:
        yield from (now + _LONGEST_SLEEP, self._deadline, self._began + self._boot_limit)
        yield self._alone + _KEEPER_LIMIT
        for seat in self._seats:
            yield seat.due
            yield seat.asked + _KEEPER_LIMIT
            if seat.pid:
                yield from (cell.kill_at for cell in seat.slot.cells())

    def _forget(self) -> None:
        """For a forked child: what is the master's alone."""
        self._signals.forget()
        self._pid_file.forget()
        self._forget_children()

    def _forget_children(self) -> None:
        for seat in self._seats:
            if seat.link is not None:
                seat.link.close()


def _tell(keeper: Seat, message: Message) -> None:
    if keeper.link is not None:
        keeper.link.send(message)
