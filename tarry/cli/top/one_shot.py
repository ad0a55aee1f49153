"""One look, for pipes and programs: what the live picture would show at this moment, without its rates."""

from pathlib import Path
from socket import gethostname
from time import time
from typing import Any

from msgspec import Struct, to_builtins

from tarry.cli.endpoints import EndpointHealth
from tarry.cli.printing import format_clock, print_json, print_table
from tarry.cli.top import facts
from tarry.cli.top.facts import Counted, Glance, Host, Queue
from tarry.cli.top.sources import Counts, Glances, Masters, Way
from tarry.cli.top.tables import WorkerLine, worker_lines
from tarry.cli.top.text import size, span, visible
from tarry.errors import MasterError, StoreError
from tarry.model.duration import SECOND
from tarry.runtime.scoreboard import Board

_RATES = ("came", "left", "died", "least")


class Snapshot(Struct):
    """One moment."""

    host: str
    at: float
    master: Board | None = None
    master_trouble: str = ""
    store: str = ""
    store_trouble: str = ""
    queues: list[Queue] = []
    jobs: list[facts.RunningJob] = []
    hosts: list[Host] = []
    http: list[EndpointHealth] = []


def taken(way: Way, pid_file: Path) -> Snapshot:
    """What is to be seen now; what cannot be seen is told in it and not raised."""
    found = Snapshot(gethostname(), time())
    try:
        found.master = Masters(pid_file).look().board
    except MasterError as error:
        found.master_trouble = str(error)
    glance, counted = _stored(way, found)
    found.queues = facts.queues(counted, glance)
    found.http = facts.http(counted, glance)
    if glance is not None:
        found.store, found.jobs, found.hosts = glance.url, glance.jobs, glance.hosts
    return found


def _stored(way: Way, found: Snapshot) -> tuple[Glance | None, Counted | None]:
    glances, counts = Glances(way), Counts(way.open)
    glance: Glance | None = None
    try:
        glance = glances.look()
        found.store_trouble = glance.missing
        return glance, counts.look()
    except StoreError as error:
        found.store_trouble = str(error)
        return glance, None
    finally:
        glances.close()
        counts.close()


def as_facts(report: Snapshot) -> dict[str, Any]:
    """For programs. Times are seconds; null: there is none, or it is not known. No rates: they take two looks."""
    told: dict[str, Any] = to_builtins(report)
    told["queues"] = [{k: v for k, v in queue.items() if k not in _RATES} for queue in told["queues"]]
    return told


def show(report: Snapshot, json: bool) -> None:
    """Prints it."""
    if json:
        print_json(as_facts(report))
        return
    print(_title(report))
    if report.store_trouble:
        print(f"store away: {visible(report.store_trouble)}")
    if report.master is not None and report.master.alive:
        heads = ("process", "pid", "state", "memory", "processed", "failed", "up", "job")
        _show(heads, [_worker(line) for line in worker_lines(facts.Mastered(report.master, {}))])
    columns = ("queue", "is", "ready", "scheduled", "running", "dead", "done", "oldest ready", "wait")
    _show(columns, [_queue(queue) for queue in report.queues])
    if report.http:
        _show(("http task", "to", "at once", "in flight", "waiting", "is"), [_http(one) for one in report.http])
    if any(not host.here for host in report.hosts):
        _show(("host", "state", "master", "workers", "busy", "heard"), [_host(host) for host in report.hosts])


def _title(report: Snapshot) -> str:
    board = report.master
    if report.master_trouble:
        return f"master: {report.master_trouble}"
    if board is None or not board.alive:
        return "master not running"
    since = format_clock(round(board.started * SECOND))
    return f"master pid {board.pid}, {board.state}, since {since}, up {span(report.at - board.started)}"


def _show(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    print()
    print_table(heads, [tuple(visible(cell) if isinstance(cell, str) else cell for cell in row) for row in rows])


def _worker(line: WorkerLine) -> tuple[Any, ...]:
    child, job = line.child, line.job
    doing = f"{job.task} {job.id} {span(job.seconds)}" if job else "-"
    up = span(time() - child.started)
    return (child.name, str(child.pid), child.boot, size(child.rss), child.processed, child.failed, up, doing)


def _queue(queue: Queue) -> tuple[Any, ...]:
    counts = (queue.ready, queue.scheduled, queue.running, queue.dead, queue.done)
    return (queue.queue, "paused" if queue.paused else "open", *counts, span(queue.oldest), span(queue.wait))


def _http(one: EndpointHealth) -> tuple[Any, ...]:
    count = "-" if one.at_once is None else one.at_once
    trouble = f"{one.problem}: {one.trouble}" if one.problem and one.trouble else one.problem
    return (one.task, one.to, count, one.in_flight, one.waiting or 0, trouble)


def _host(host: Host) -> tuple[Any, ...]:
    return (host.host, host.state, str(host.pid), host.workers, host.busy, span(host.heard))
