"""Everything that is watched, put together for one drawing or one snapshot."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from socket import gethostname
from time import monotonic, time

from tarry.cli.endpoints import EndpointHealth
from tarry.cli.top import facts
from tarry.cli.top.facts import Counted, Glance, Mastered, Queue
from tarry.cli.top.poller import Watch
from tarry.cli.top.screen import Head, Piece
from tarry.cli.top.sources import Counts, Glances, Masters, Way
from tarry.cli.top.tables import HOSTS, HTTP, JOBS, QUEUES, WORKERS, pools, worker_lines
from tarry.cli.top.text import number, rate, span
from tarry.cli.top.view_state import Desk
from tarry.runtime.notice import Notice

_TOLD = 3
"""HTTP tasks in trouble that are named."""
_REST = 3.0
"""Counting may read the whole store: it is at it for a quarter of the time at most."""
_CLOSE_LIMIT = 0.5
"""Seconds that the end waits for each look; one that hangs ends with the process."""


class Picture:
    """The three watches. `changed` is called from their threads whenever there is something new."""

    def __init__(self, way: Way, pid_file: Path, interval: float, changed: Callable[[], None]) -> None:
        self._pid_file, self._note, self._host = pid_file, way.note, gethostname()
        self._master: Watch[Mastered] = Watch(Masters(pid_file), min(interval, 1.0), changed)
        self._glance: Watch[Glance] = Watch(Glances(way), interval, changed)
        self._counts: Watch[Counted] = Watch(Counts(way.open), interval, changed, _REST)
        self._watches: tuple[Watch[Mastered] | Watch[Glance] | Watch[Counted], ...] = (
            self._master, self._glance, self._counts,
        )  # fmt: skip

    def start(self) -> None:
        """Begins to look."""
        for watch in self._watches:
            watch.start()

    def close(self) -> None:
        """Ends all looks, or leaves them to end with the process."""
        for watch in self._watches:
            watch.close(_CLOSE_LIMIT)

    def soon(self) -> None:
        """Something was changed: the quick look comes at once."""
        self._glance.soon()

    def onto(self, desk: Desk) -> Head:
        """Puts the facts on the desk; answers what stands above them."""
        mastered, glance = self._master.answer, self._glance.answer
        queues = facts.queues(self._counts.answer, glance)
        desk.facts[QUEUES.name] = queues
        desk.facts[WORKERS.name] = worker_lines(mastered)
        desk.facts[JOBS.name] = glance.jobs if glance else ()
        hosts = glance.hosts if glance else []
        desk.facts[HOSTS.name] = hosts
        http = facts.http(self._counts.answer, glance)
        desk.facts[HTTP.name] = http
        elsewhere = len(hosts) > 1 or any(not host.here for host in hosts)
        desk.shown = (QUEUES, WORKERS, JOBS, *((HTTP,) if http else ()), *((HOSTS,) if elsewhere else ()))
        totals = _totals(queues, self._counts.answer)
        above = (*self._pools(mastered), ("", totals), *self._store(glance), *_held(http))
        return Head(self._title(mastered), above)

    def _title(self, seen: Mastered | None) -> str:
        trouble, _ = self._master.told(monotonic())
        if trouble:
            return f"tarry top   {self._host}   ! {trouble}"
        board = None if seen is None else seen.board
        if board is None:
            return f"tarry top   {self._host}   {'no master runs here' if seen else '...'} ({self._pid_file})"
        if not board.alive:
            return f"tarry top   {self._host}   ! master {board.pid} is gone: what stands below is what it left"
        generation = f", generation {board.notice.generation}" if board.notice.generation > 1 else ""
        up = span(time() - board.started)
        return f"tarry top   {self._host}   master {board.pid} {board.state}, up {up}{generation}"

    def _pools(self, seen: Mastered | None) -> Sequence[Piece]:
        if seen is None or seen.board is None or not seen.board.alive:
            return ()
        board = seen.board
        pace = rate(sum(seen.paces.values()) if seen.paces else None)
        failing = f", {rate(seen.failing)}/s failed" if seen.failing else ""
        told = ", ".join(f"{name} {busy} of {ready} busy" for name, busy, ready in pools(board))
        return (("", f"pools    {pace}/s ended{failing}   {told}"), *_news(board.notice))

    def _store(self, glance: Glance | None) -> Sequence[Piece]:
        now = monotonic()
        troubles = {self._glance.told(now), self._counts.told(now)} - {("", 0.0)}
        if troubles:
            why, seconds = max(troubles, key=lambda trouble: trouble[1])
            return (("class:bad", f"store    ! away for {span(float(round(seconds)))}: {why}"),)
        missing = {found.missing for found in (glance, self._counts.answer) if found is not None} - {""}
        if missing:
            return (("class:bad", f"store    ! in part only: {'; '.join(sorted(missing))}"),)
        if glance is None:
            return (("class:quiet", "store    ..."),)
        took = f"   counting takes {span(self._counts.took)}" if self._counts.took >= 0.5 else ""
        note = (("class:notice", f"app      ! {self._note.removeprefix('app ')}"),) if self._note else ()
        return (("", f"store    {glance.url}{took}"), *note)


def _news(notice: Notice) -> Iterator[Piece]:
    """What an operator has to know of reloads, and of pools that cannot begin."""
    if notice.reloading:
        yield "class:notice", f"reload   {notice.reloading}"
    elif notice.trouble:
        yield "class:bad", f"reload   ! came to nothing, what ran goes on: {_last_line(notice.trouble)}"
    for pool in notice.pools:
        if pool.failed:
            yield "class:bad", f"pool     ! {pool.name} failed: {_last_line(pool.failed)}"


def _held(http: Sequence[EndpointHealth]) -> Iterator[Piece]:
    """HTTP tasks of which nothing is sent, or less than they could have."""
    held = [f"{one.task} is {one.problem}" for one in http if one.problem]
    if held:
        more = f", and {len(held) - _TOLD} more" if len(held) > _TOLD else ""
        yield "class:bad", f"http     ! {'; '.join(held[:_TOLD])}{more}"


def _last_line(text: str) -> str:
    """Of a traceback, that is the error."""
    return text.strip().rpartition("\n")[2]


def _totals(queues: Sequence[Queue], counted: Counted | None) -> str:
    told = [f"{number(sum(getattr(q, state) for q in queues))} {state}" for state in ("ready", "running", "dead")]
    flows = [] if counted is None else list(counted.flows.values())
    came = [flow.came for flow in flows if flow.came is not None]
    left = [flow.left for flow in flows if flow.left is not None]
    if came and left:
        told.append(f"{rate(sum(came))}/s in, {rate(sum(left))}/s out")
    return f"jobs     {'   '.join(told)}"
