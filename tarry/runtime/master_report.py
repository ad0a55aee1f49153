"""The scoreboard as lines of text, for the log and for commands."""

import logging
from pathlib import Path
from time import time

from tarry.errors import MasterError
from tarry.model.duration import SECOND, format_duration
from tarry.model.quantity import quantity
from tarry.runtime.board.layout import GONE
from tarry.runtime.board.reader import SERVER, Board, BoardJob, ChildStatus, read

_log = logging.getLogger("tarry.master")


def log_report(path: Path) -> None:
    """Logs the scoreboard in that file."""
    try:
        board = read(path)
    except MasterError as error:
        _log.error("no status: %s", error)
    else:
        for line in report(board, time()) if board else ():
            _log.info("%s", line)


def report(board: Board, now: float) -> list[str]:
    """One line for the master and one for each child. now: seconds since the epoch."""
    head = (
        f"master pid {board.pid} {board.state}, up {format_span(now - board.started)}, {len(board.children)} children"
    )
    return [
        head,
        *problem_lines(board),
        *scaling_lines(board),
        *listening_lines(board),
        *(_line(child, now) for child in board.children),
    ]


def problem_lines(board: Board) -> list[str]:
    """The running reload, why the last one failed, a store that is away, and pools that cannot start; often empty."""
    notice = board.notice
    lines = [f"reloading: {notice.reloading}"] if notice.reloading else []
    lines += [f"the last reload failed: {notice.trouble}"] if notice.trouble else []
    lines += [f"the store is away: {notice.away}"] if notice.away else []
    return lines + [f"pool {pool.name} has failed: {pool.failed}" for pool in notice.pools if pool.failed]


def scaling_lines(board: Board) -> list[str]:
    """The pools that follow their backlogs: `pool mail: 3 of 1..8 workers`."""
    pools = [pool for pool in board.notice.pools if pool.most]
    return [f"pool {pool.name}: {pool.workers} of {pool.least}..{pool.most} workers, by its backlog" for pool in pools]


def listening_lines(board: Board) -> list[str]:
    """At which addresses servers accept: `http at 127.0.0.1:7800`."""
    return [f"{door} at {', '.join(addresses)}" for door, addresses in board.notice.listening.items()]


def waiting_lines(board: Board) -> list[str]:
    """What a stop waits for: the store, if it is away, and each process that still lives."""
    away = [f"the store, which is away: {board.notice.away}"] if board.notice.away else []
    return away + [
        f"{child.name} pid {child.pid}" + ("; " + _jobs(child) if child.running else "")
        for child in board.children
        if child.boot != GONE
    ]


def _line(child: ChildStatus, now: float) -> str:
    facts = [f"{child.name} pid {child.pid} {child.boot}", f"{child.processed} processed"]
    facts.append(connections(child) if child.role == SERVER else quantity(child.failed, "failed attempt"))
    facts.append(f"{child.rss / 2**20:.1f} MB")
    facts.append(f"ended: {child.last_exit}" if child.boot == GONE else f"up {format_span(now - child.started)}")
    return ", ".join(facts) + ("; " + _jobs(child) if child.running else "")


def _jobs(child: ChildStatus) -> str:
    shown = longest_running(child)
    more = len(child.running) - len(shown)
    names = ", ".join(f"{job.task} {job.id} for {format_span(job.seconds)}" for job in shown)
    return f"runs {names}" + (f" and {more} more" if more else "")


def connections(child: ChildStatus) -> str:
    """The connections of a server, and how many it refused since there were too many."""
    return quantity(child.held, "connection") + (f", {child.failed} refused" if child.failed else "")


def longest_running(child: ChildStatus) -> list[BoardJob]:
    """The jobs that have run for the longest time; three at most."""
    return sorted(child.running, key=lambda job: -job.seconds)[:3]


def format_span(seconds: float) -> str:
    """`4.2ms`, `3m20s`."""
    return format_duration(max(0, round(seconds * SECOND)))
