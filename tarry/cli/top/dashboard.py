"""Collects all data of the dashboard for one drawing.

Polls a source in a separate thread, so that drawing never waits for it.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from socket import gethostname
from time import monotonic, time
from typing import Generic, Protocol, TypeVar

from tarry.cli.top import facts
from tarry.cli.top.facts import HistoryFigures, JobCounts, MasterFigures, QueueRow, Snapshot
from tarry.cli.top.screen import Header, Piece
from tarry.cli.top.sources import CountSource, HistorySource, MasterSource, SnapshotSource, StoreAccess
from tarry.cli.top.tables import HOSTS, HTTP, JOBS, QUEUES, WORKERS, pools, worker_lines
from tarry.cli.top.text import chart_lines, number, rate, recent_line, span
from tarry.cli.top.view_state import ViewState
from tarry.push.health import EndpointHealth
from tarry.runtime.board.master_status import MasterStatus
from tarry.store.queries.history_recent import RATED
from tarry.store.shared.backoff import back_off

_MOST_NAMED = 3  # HTTP tasks in trouble that are named.
_COUNT_REST = 3.0  # Counting may read the whole store: with this pause it takes a quarter of the time at most.
_HISTORY_INTERVAL = 5.0  # Seconds: figures of minutes change slowly.
_CLOSE_LIMIT = 0.5  # Seconds to wait for each poller at the end; one that hangs ends with the process.


class Dashboard:
    """Owns the pollers. They call `on_change` from their threads after each poll."""

    def __init__(
        self, store_access: StoreAccess, pid_file: Path, interval: float, on_change: Callable[[], None]
    ) -> None:
        self._pid_file, self._note, self._host = pid_file, store_access.note, gethostname()
        # A file on this host costs little to read, so it is read at least once a second.
        self._master: Poller[MasterFigures] = Poller(MasterSource(pid_file), min(interval, 1.0), on_change)
        self._snapshot: Poller[Snapshot] = Poller(SnapshotSource(store_access), interval, on_change)
        self._counts: Poller[JobCounts] = Poller(CountSource(store_access.open), interval, on_change, _COUNT_REST)
        self._history: Poller[HistoryFigures] = Poller(
            HistorySource(store_access.open), max(interval, _HISTORY_INTERVAL), on_change, _COUNT_REST
        )
        self._pollers: tuple[
            Poller[MasterFigures] | Poller[Snapshot] | Poller[JobCounts] | Poller[HistoryFigures], ...
        ] = (self._master, self._snapshot, self._counts, self._history)

    def start(self) -> None:
        """Starts the pollers."""
        for poller in self._pollers:
            poller.start()

    def close(self) -> None:
        """Stops the pollers."""
        for poller in self._pollers:
            poller.close(_CLOSE_LIMIT)

    def poll_now(self) -> None:
        """Takes the next snapshot at once, after a change by the user."""
        self._snapshot.poll_now()

    def fill(self, view: ViewState) -> Header:
        """Puts the latest data into the view; returns the header above the tables."""
        figures, snapshot = self._master.answer, self._snapshot.answer
        history = self._history.answer
        queues = facts.queues(self._counts.answer, snapshot, history)
        view.facts[QUEUES.name] = queues
        view.facts[WORKERS.name] = worker_lines(figures)
        view.facts[JOBS.name] = snapshot.jobs if snapshot else ()
        hosts = snapshot.hosts if snapshot else []
        view.facts[HOSTS.name] = hosts
        http = facts.http(self._counts.answer, snapshot)
        view.facts[HTTP.name] = http
        # A single host, this one, is in the other tables already.
        elsewhere = len(hosts) > 1 or any(not host.here for host in hosts)
        view.shown = (QUEUES, WORKERS, JOBS, *((HTTP,) if http else ()), *((HOSTS,) if elsewhere else ()))
        totals = _totals(queues, self._counts.answer)
        recent = history.recent if history else None
        lines = () if recent is None else (("", f"{RATED} min    {recent_line(recent)}"),)
        charts = () if recent is None else tuple(("", line) for line in chart_lines(recent))
        above = (*self._pools(figures), ("", totals), *lines, *self._store(snapshot), *_held_tasks(http))
        return Header(self._title(figures), above, charts)

    def _title(self, figures: MasterFigures | None) -> str:
        trouble, _ = self._master.problem(monotonic())
        if trouble:
            return f"tarry top   {self._host}   ! {trouble}"
        board = None if figures is None else figures.board
        if board is None:
            return f"tarry top   {self._host}   {'no master runs here' if figures else '...'} ({self._pid_file})"
        if not board.alive:
            return f"tarry top   {self._host}   ! master {board.pid} is gone: what stands below is what it left"
        generation = f", generation {board.notice.generation}" if board.notice.generation > 1 else ""
        up = span(time() - board.started)
        return f"tarry top   {self._host}   master {board.pid} {board.state}, up {up}{generation}"

    def _pools(self, figures: MasterFigures | None) -> Sequence[Piece]:
        if figures is None or figures.board is None or not figures.board.alive:
            return ()
        board = figures.board
        per_second = rate(sum(figures.rates.values()) if figures.rates else None)
        failing = f", {rate(figures.failing)}/s failed attempts" if figures.failing else ""
        parts = ", ".join(f"{name} {busy} of {ready} busy" for name, busy, ready in pools(board))
        return (("", f"pools    {per_second}/s ended{failing}   {parts}"), *_master_notices(board.notice))

    def _store(self, snapshot: Snapshot | None) -> Sequence[Piece]:
        now = monotonic()
        troubles = {self._snapshot.problem(now), self._counts.problem(now), self._history.problem(now)} - {("", 0.0)}
        if troubles:
            why, seconds = max(troubles, key=lambda trouble: trouble[1])
            return (("class:bad", f"store    ! away for {span(float(round(seconds)))}: {why}"),)
        missing = {
            found.missing for found in (snapshot, self._counts.answer, self._history.answer) if found is not None
        } - {""}
        if missing:
            return (("class:bad", f"store    ! in part only: {'; '.join(sorted(missing))}"),)
        if snapshot is None:
            return (("class:quiet", "store    ..."),)
        # The counts are as old as their reading takes, so a long time is shown.
        took = f"   counting takes {span(self._counts.took)}" if self._counts.took >= 0.5 else ""
        note = (("class:notice", f"app      ! {self._note.removeprefix('app ')}"),) if self._note else ()
        return (("", f"store    {snapshot.url}{took}"), *note)


def _master_notices(notice: MasterStatus) -> Iterator[Piece]:
    """Lines about a reload that runs or has failed, and about pools that cannot start."""
    if notice.reloading:
        yield "class:notice", f"reload   {notice.reloading}"
    elif notice.trouble:
        yield "class:bad", f"reload   ! came to nothing, what ran goes on: {_last_line(notice.trouble)}"
    for pool in notice.pools:
        if pool.failed:
            yield "class:bad", f"pool     ! {pool.name} failed: {_last_line(pool.failed)}"


def _held_tasks(http: Sequence[EndpointHealth]) -> Iterator[Piece]:
    """A line about HTTP tasks whose requests are stopped or slowed down."""
    held = [f"{one.task} is {one.problem}" for one in http if one.problem]
    if held:
        more = f", and {len(held) - _MOST_NAMED} more" if len(held) > _MOST_NAMED else ""
        yield "class:bad", f"http     ! {'; '.join(held[:_MOST_NAMED])}{more}"


def _last_line(text: str) -> str:
    """The last line of the text; in a traceback that is the error."""
    return text.strip().rpartition("\n")[2]


def _totals(queues: Sequence[QueueRow], counted: JobCounts | None) -> str:
    parts = [f"{number(sum(getattr(q, state) for q in queues))} {state}" for state in ("ready", "running", "dead")]
    flows = [] if counted is None else list(counted.flows.values())
    came = [flow.came for flow in flows if flow.came is not None]
    left = [flow.left for flow in flows if flow.left is not None]
    if came and left:
        parts.append(f"{rate(sum(came))}/s in, {rate(sum(left))}/s out")
    return f"jobs     {'   '.join(parts)}"


T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_LONGEST_REST = 60.0
SLOW = 3.0
"""Seconds after which a poll that has not ended is reported as a problem."""


class PollSource(Protocol[T_co]):
    """What is polled; called from one thread only."""

    def look(self) -> T_co:
        """Returns the current data."""

    def close(self) -> None:
        """Releases its resources."""


class Poller(Generic[T]):
    """Polls every `interval` seconds, one poll at a time; the pause is at least `rest` times the time of a poll."""

    def __init__(
        self, source: PollSource[T], interval: float, on_change: Callable[[], None], rest: float = 0.5
    ) -> None:
        self._source, self._interval, self._on_change, self._rest = source, interval, on_change, rest
        self.answer: T | None = None
        """The data of the last successful poll; kept while polls fail."""
        self.took = 0.0
        self.trouble = ""
        """Why the last poll failed; empty: it succeeded."""
        self._failures, self._last_success = 0, monotonic()
        self._began = 0.0
        self._stopped, self._wake = False, threading.Event()
        # daemon: a poll that hangs must not delay the end of the process.
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def poll_now(self) -> None:
        """Starts the next poll at once."""
        self._wake.set()

    def problem(self, now: float) -> tuple[str, float]:
        """What is wrong, or an empty text, and for how many seconds. now: by time.monotonic()."""
        # Read once, since the thread may set it to 0.0 at any moment.
        began = self._began
        if began and now - began >= SLOW:
            return self.trouble or "it does not answer", now - self._last_success
        return self.trouble, now - self._last_success if self.trouble else 0.0

    def close(self, limit: float) -> None:
        """Ends the thread. If a poll hangs for `limit` seconds, the thread ends with the process."""
        self._stopped = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(limit)

    def _run(self) -> None:
        while not self._stopped:
            self._began = began = monotonic()
            self._poll()
            self.took, self._began = monotonic() - began, 0.0
            if not self._stopped:
                self._on_change()
                self._wake.wait(self._pause())
                self._wake.clear()
        with contextlib.suppress(Exception):
            self._source.close()

    def _poll(self) -> None:
        try:
            self.answer = self._source.look()
        except Exception as error:  # any error is shown, and the old data stays
            self.trouble = str(error) or type(error).__name__
            self._failures += 1
        else:
            self.trouble, self._failures, self._last_success = "", 0, monotonic()

    def _pause(self) -> float:
        # A source that fails is asked less and less often, and a slow one is not kept busy all the time.
        if self._failures:
            return max(self._interval - self.took, back_off(self._failures))
        return max(self._interval - self.took, min(self._rest * self.took, _LONGEST_REST))
