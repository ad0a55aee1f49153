"""What other processes do with a master: show, stop, reload, scale it. A master lives while its pid file is locked."""

import contextlib
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic, sleep

from msgspec.structs import replace

from tarry import platform
from tarry.errors import MasterError
from tarry.runtime import upgrades
from tarry.runtime.board.layout import QUITTING, STOPPING
from tarry.runtime.board.reader import Board, read
from tarry.runtime.board.scoreboard import DRAFT, board_path
from tarry.runtime.master_report import waiting_lines
from tarry.runtime.pidfile import holder
from tarry.runtime.request_files import asker_path, write_name, write_request
from tarry.runtime.wait_notes import Tell, WaitNotes

# Seconds.
_POLL = 0.05
_ANSWER_TIMEOUT = 5.0

_STOP_NOW = "`tarry quit` ends it now, and what runs is run again; with --timeout 30s only the wait ends"
_GOES_ON = "it goes on without this command: Ctrl-C or --timeout 60s end the wait, `tarry status` shows how far it is"
_UPGRADES = "Ctrl-C ends the wait, `tarry status` shows whether the old master still serves; its log says more"


def status(pid_file: Path) -> Board | None:
    """The scoreboard; `alive` is False if a dead master left it. None: no master runs; the last one ended cleanly."""
    board = read(board_path(pid_file))
    return None if board is None else replace(board, alive=holder(pid_file) == board.pid)


def stop(pid_file: Path, timeout: float | None, tell: Tell) -> None:
    """Stops gracefully and waits until the master is gone; tells once a second what is awaited.

    timeout: seconds; None: none.

    MasterError: no master runs, or it still runs after the timeout. If it is stopping already, this only waits.
    """
    pid = request_stop(pid_file)
    if not _wait_for_exit(pid_file, pid, timeout, WaitNotes(tell, _STOP_NOW), lambda: None):
        raise MasterError(f"still running after {timeout:g} s; `tarry quit` ends it now")
    if _is_replaced(pid_file, pid):
        stop(pid_file, timeout, tell)


def quit(pid_file: Path, timeout: float | None, tell: Tell) -> None:
    """Stops by force: the master kills the workers now. Waits and raises like `stop`."""
    pid = _signal_master(pid_file, signal.SIGINT)

    # The master takes the first INT for a stop, and only a second one for a quit.
    def insist() -> None:
        board = read(board_path(pid_file))
        if board is not None and board.pid == pid and board.state != QUITTING:
            _signal(pid_file, pid, signal.SIGINT)

    notes = WaitNotes(
        tell, f"if it does not answer: `kill -9 {pid}` ends the master, and its processes end by themselves"
    )
    if not _wait_for_exit(pid_file, pid, timeout, notes, insist):
        raise MasterError(f"still running after {timeout:g} s: the master, pid {pid}, does not answer; `kill -9` it")
    if _is_replaced(pid_file, pid):
        quit(pid_file, timeout, tell)


def reload(pid_file: Path, timeout: float | None, tell: Tell, by: str = "") -> int:
    """Waits until the new generation serves, and returns its number. timeout: seconds; None: none. by: who asks.

    MasterError: no master runs, the reload failed (with the cause), or it is not done after the timeout.
    """
    # Read before the signal: only a reload with a higher number serves this request.
    before = _board(pid_file).notice.asked
    pid = request_reload(pid_file, by)
    began, notes = monotonic(), WaitNotes(tell, _GOES_ON)
    while (board := _board(pid_file)).pid == pid and board.notice.done <= before:
        now = monotonic()
        if board.state in (STOPPING, QUITTING):
            # No reload begins any more, so there is nothing to wait for.
            raise MasterError(f"the master is {board.state}: nothing is reloaded any more")
        if timeout is not None and now - began >= timeout:
            raise MasterError(f"not done after {timeout:g} s; it goes on, see `tarry status`")
        notes.note(lambda: [f"reloading: {board.notice.reloading or 'waiting its turn'}"])
        sleep(_POLL)
    if board.pid != pid:
        # An upgrade: the master that serves now may have read its settings before this was asked.
        return reload(pid_file, timeout, tell, by)
    return reload_result(board)


def request_reload(pid_file: Path, by: str = "") -> int:
    """Asks the master to reload; returns its pid. by: who asks. MasterError: none runs."""
    path = asker_path(pid_file)
    # Whoever may not write there is told so by the signal.
    with contextlib.suppress(OSError):
        if by:
            write_name(path, by)
    try:
        return _signal_master(pid_file, signal.SIGHUP)
    except MasterError:
        # Else a later reload would be that of this name.
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def reload_result(board: Board) -> int:
    """The generation that serves since the last reload, which has ended. MasterError: it failed, with the cause."""
    if board.notice.trouble:
        raise MasterError(f"the reload came to nothing, and what ran goes on: {board.notice.trouble}")
    return board.notice.generation


def request_stop(pid_file: Path) -> int:
    """Asks the master to stop gracefully; returns its pid. MasterError: none runs."""
    # Not INT: a second INT means quit, and two people who both stop the master do not mean that.
    return _signal_master(pid_file, signal.SIGQUIT)


def upgrade(pid_file: Path, tell: Tell, by: str = "") -> int:
    """Waits until a new master, of the code that is installed now, has taken the place of the old one; returns its pid.
    The old one ends when its jobs have. If another upgrade is under way, this one follows it. by: who asks.

    MasterError: no master runs, or the new one cannot serve (with the cause), and the old one goes on.
    """
    notes = WaitNotes(tell, _UPGRADES)
    before = _wait_for_upgrade(pid_file, notes)
    request = upgrades.write_request(pid_file, by)
    pid = _signal_master(pid_file, signal.SIGHUP)
    try:
        while (board := status(pid_file)) is None or board.pid == pid or not board.alive:
            # Each look at the board may be between two masters, and then it is nobody's.
            if board is not None and board.alive and board.notice.upgrades > before.notice.upgrades:
                _check_upgrade(board)
            if not _is_there_one(pid_file):
                raise MasterError(f"no master is running any more ({pid_file}): its log may say why")
            notes.note(lambda: ["waiting for the new master to serve"])
            sleep(_POLL)
    finally:
        # Else a later reload would be an upgrade.
        request.unlink(missing_ok=True)
    return board.pid


def _wait_for_upgrade(pid_file: Path, notes: WaitNotes) -> Board:
    """Returns the board once no upgrade is under way: its new master may have loaded what was installed before."""
    while True:
        # Before the board: of a master that stops then, with another beside it, that one takes the place.
        is_replaced = _has_draft(pid_file)
        board = _board(pid_file)
        if not (board.notice.upgrading or (is_replaced and board.state in (STOPPING, QUITTING))):
            return board
        notes.note(lambda: ["waiting for the end of another upgrade"])
        sleep(_POLL)


def _is_there_one(pid_file: Path) -> bool:
    # In this order: the new one's file is moved to the place of the other.
    return _has_draft(pid_file) or holder(pid_file) is not None


def _has_draft(pid_file: Path) -> bool:
    """Whether a new master is there that has not taken over yet."""
    return holder(pid_file.with_name(pid_file.name + DRAFT)) is not None


def _check_upgrade(board: Board) -> None:
    trouble = board.notice.upgrade_trouble
    # Without trouble it stops since the new one serves.
    if trouble and board.state in (STOPPING, QUITTING):
        raise MasterError(f"the master is {board.state}: it is not upgraded any more")
    if trouble:
        raise MasterError(f"the upgrade came to nothing, and what ran goes on: {trouble}")


def scale(pid_file: Path, pool: str, workers: int) -> None:
    """Returns once the master has set the pool to so many workers. MasterError: no master runs, it has no such pool,
    or it does not answer."""
    board = _board(pid_file)
    if board.state in (STOPPING, QUITTING):
        raise MasterError(f"the master is {board.state}: no pool is scaled any more")
    pools = {each.name for each in board.notice.pools}
    if pool not in pools:
        raise MasterError(f"no pool {pool!r}: there are {', '.join(sorted(pools)) or 'none'}")
    bounds = next(each for each in board.notice.pools if each.name == pool)
    # Checked here, since the master only logs that it refuses a number.
    if bounds.most and not bounds.least <= workers <= bounds.most:
        raise MasterError(
            f"pool {pool} follows its backlog, from {bounds.least} to {bounds.most} workers: for another number change"
            " workers in the settings, then `tarry reload`"
        )
    # Before the signal: the master reads the request when the signal comes.
    request = write_request(pid_file, pool, workers)
    _signal_master(pid_file, signal.SIGTTIN)
    end = monotonic() + _ANSWER_TIMEOUT
    while (pool, workers) not in {(each.name, each.workers) for each in _board(pid_file).notice.pools}:
        if monotonic() > end:
            # Else the next TTIN would apply this old request.
            request.unlink(missing_ok=True)
            raise MasterError(f"the master did not take it up within {_ANSWER_TIMEOUT:g} s: see its log")
        sleep(_POLL)


def _board(pid_file: Path) -> Board:
    end = monotonic() + _ANSWER_TIMEOUT
    # Between two masters it is nobody's for a moment.
    while (board := status(pid_file)) is None or not board.alive:
        if not _is_there_one(pid_file) or monotonic() > end:
            raise MasterError(f"no master is running ({pid_file}): `tarry start` starts one")
        sleep(_POLL)
    return board


def _wait_for_exit(
    pid_file: Path, pid: int, timeout: float | None, notes: WaitNotes, insist: Callable[[], None]
) -> bool:
    """True: in time, the master has ended or another one holds the lock."""
    began = monotonic()
    while holder(pid_file) == pid:
        now = monotonic()
        if timeout is not None and now - began >= timeout:
            return False
        notes.note(lambda: _awaited_processes(pid_file))
        sleep(_POLL)
        insist()
    return True


def _is_replaced(pid_file: Path, pid: int) -> bool:
    """Whether an upgrade has given the place of that master to another one. The first may have got our signal as it
    handed over: then the other one does not know of it."""
    end = monotonic() + _ANSWER_TIMEOUT
    while (now := holder(pid_file)) is not None and monotonic() < end:
        board = read(board_path(pid_file))
        # It moves the pid file first.
        if board is not None and board.pid == now:
            return now != pid and board.notice.origin.kind == "upgrade"
        sleep(_POLL)
    return False


def _awaited_processes(pid_file: Path) -> Iterable[str]:
    board = read(board_path(pid_file))
    return () if board is None else [f"waiting for {line}" for line in waiting_lines(board) or ["the master"]]


def _signal_master(pid_file: Path, number: int) -> int:
    pid = holder(pid_file)
    if pid is None or not _signal(pid_file, pid, number):
        raise MasterError(f"no master is running ({pid_file}): `tarry start` starts one")
    return pid


def _signal(pid_file: Path, pid: int, number: int) -> bool:
    """False: the master is gone."""
    try:
        return platform.send_signal(pid, number, lambda: _is_master(pid_file, pid))
    except ProcessLookupError:
        return False
    except PermissionError:
        raise MasterError(f"the master, pid {pid}, belongs to another user: run this as that user") from None


def _is_master(pid_file: Path, pid: int) -> bool:
    held = holder(pid_file) == pid
    # The pid counts in the master's namespace. Here another process may have that number.
    if held and not platform.has_open(pid, pid_file):
        raise MasterError(f"the master of {pid_file} runs in another container: run this there")
    return held
