"""A single report, for pipes and programs: the data of the dashboard; rates are those of the history."""

from pathlib import Path
from socket import gethostname
from time import time
from typing import Any

from msgspec import Struct, to_builtins

from tarry.cli.shared.printing import format_clock, print_json, print_table
from tarry.cli.top import facts
from tarry.cli.top.facts import HistoryFigures, HostRow, JobCounts, QueueRow, Snapshot
from tarry.cli.top.sources import CountSource, HistorySource, MasterSource, SnapshotSource, StoreAccess
from tarry.cli.top.tables import WorkerLine, worker_lines
from tarry.cli.top.text import chart_lines, make_printable, p50, p99, rate, recent_line, size, span
from tarry.errors import MasterError, StoreError
from tarry.model.duration import SECOND
from tarry.push.health import EndpointHealth
from tarry.runtime.board.reader import SERVER, Board
from tarry.runtime.master_report import connections
from tarry.store.queries.history_recent import RATED, MinuteFigures, RecentFigures, RecentHistory

# These rates need two polls, and a report makes one.
_RATES = ("came", "left", "died", "least")


_RECENT = ("in/min", "out/min", "fail/min", "wait p99", "ran", "ran p99")


class OneShotReport(Struct):
    """The data at one moment. The names of the fields are keys of the JSON output."""

    host: str
    at: float
    master: Board | None = None
    master_trouble: str = ""
    store: str = ""
    store_trouble: str = ""
    queues: list[QueueRow] = []
    jobs: list[facts.RunningJob] = []
    hosts: list[HostRow] = []
    http: list[EndpointHealth] = []
    recent: RecentFigures | None = None
    """The last minutes of all queues, by the history; None: no keeper sums it up."""
    minutes: list[MinuteFigures] = []


def take_report(store_access: StoreAccess, pid_file: Path) -> OneShotReport:
    """Reads all data; errors are put into the report and not raised."""
    found = OneShotReport(gethostname(), time())
    try:
        found.master = MasterSource(pid_file).look().board
    except MasterError as error:
        found.master_trouble = str(error)
    snapshot, counted, history = _read_store(store_access, found)
    found.queues = facts.queues(counted, snapshot, history)
    if history is not None and history.recent is not None:
        found.recent, found.minutes = history.recent.total, history.recent.minutes
    found.http = facts.http(counted, snapshot)
    if snapshot is not None:
        found.store, found.jobs, found.hosts = snapshot.url, snapshot.jobs, snapshot.hosts
    return found


def _read_store(
    store_access: StoreAccess, found: OneShotReport
) -> tuple[Snapshot | None, JobCounts | None, HistoryFigures | None]:
    source, counts = SnapshotSource(store_access), CountSource(store_access.open)
    histories = HistorySource(store_access.open)
    snapshot: Snapshot | None = None
    history: HistoryFigures | None = None
    try:
        # Kept even if the counts, which take longer, then fail.
        snapshot = source.look()
        found.store_trouble = snapshot.missing
        history = histories.look()
        return snapshot, counts.look(), history
    except StoreError as error:
        found.store_trouble = str(error)
        return snapshot, None, history
    finally:
        source.close()
        histories.close()
        counts.close()


def report_facts(report: OneShotReport) -> dict[str, Any]:
    """The report for JSON. Times are in seconds; null: none, or not known. Rates are per minute, by the history."""
    result: dict[str, Any] = to_builtins(report)
    result["queues"] = [{k: v for k, v in queue.items() if k not in _RATES} for queue in result["queues"]]
    return result


def print_report(report: OneShotReport, json: bool) -> None:
    """Prints the report."""
    if json:
        print_json(report_facts(report))
        return
    print(_title(report))
    if report.store_trouble:
        print(f"store away: {make_printable(report.store_trouble)}")
    if report.master is not None and report.master.alive:
        heads = ("process", "pid", "state", "memory", "processed", "failed attempts", "up", "job")
        _print_section(heads, [_worker(line) for line in worker_lines(facts.MasterFigures(report.master, {}))])
    columns = ("queue", "is", "ready", "scheduled", "running", "dead", "done", "oldest ready", "wait")
    _print_recent(report)
    recent = _RECENT if report.recent else ()
    _print_section((*columns, *recent), [_queue(queue) for queue in report.queues])
    if report.http:
        _print_section(
            ("http task", "to", "at once", "in flight", "waiting", "is"), [_http(one) for one in report.http]
        )
    if any(not host.here for host in report.hosts):
        _print_section(("host", "state", "master", "workers", "busy", "heard"), [_host(host) for host in report.hosts])


def _print_recent(report: OneShotReport) -> None:
    if report.recent is not None:
        recent = RecentHistory({}, report.recent, report.minutes)
        print("\n".join(["", f"last {RATED} minutes: {recent_line(recent)}", *chart_lines(recent)]))


def _title(report: OneShotReport) -> str:
    board = report.master
    if report.master_trouble:
        return f"master: {report.master_trouble}"
    if board is None or not board.alive:
        return "master not running"
    since = format_clock(round(board.started * SECOND))
    return f"master pid {board.pid}, {board.state}, since {since}, up {span(report.at - board.started)}"


def _print_section(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    print()
    print_table(heads, [tuple(make_printable(cell) if isinstance(cell, str) else cell for cell in row) for row in rows])


def _worker(line: WorkerLine) -> tuple[Any, ...]:
    child, job = line.child, line.job
    doing = f"{job.task} {job.id} {span(job.seconds)}" if job else "-"
    if child.role == SERVER:
        doing = connections(child)
    up = span(time() - child.started)
    failed = "-" if child.role == SERVER else child.failed
    return (child.name, str(child.pid), child.boot, size(child.rss), child.processed, failed, up, doing)


def _queue(queue: QueueRow) -> tuple[Any, ...]:
    counts = (queue.ready, queue.scheduled, queue.running, queue.dead, queue.done)
    return (
        queue.queue, "paused" if queue.paused else "open", *counts, span(queue.oldest), span(queue.wait),
        *(_recent(queue.recent) if queue.recent else ()),
    )  # fmt: skip


def _recent(recent: RecentFigures) -> tuple[str, ...]:
    flow = (rate(number) for number in (recent.put, recent.ended, recent.failed))
    return (*flow, span(p99(recent.waited)), span(p50(recent.ran)), span(p99(recent.ran)))


def _http(one: EndpointHealth) -> tuple[Any, ...]:
    count = "-" if one.at_once is None else one.at_once
    trouble = f"{one.problem}: {one.trouble}" if one.problem and one.trouble else one.problem
    return (one.task, one.to, count, one.in_flight, one.waiting or 0, trouble)


def _host(host: HostRow) -> tuple[Any, ...]:
    return (host.host, host.state, str(host.pid), host.workers, host.busy, span(host.heard))
