"""The process after the one that was killed: it goes on as a master would, and checks what came of everything.

What it finds wrong is a sentence each; nothing wrong is an empty list.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import msgspec

from tarry.model.change import DONE, PUT
from tarry.model.duration import DAY
from tarry.model.flow.node_ids import is_root
from tarry.model.flow_row import FlowRow, Phase
from tarry.model.job import Job, State
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Store
from tarry.store.rules.flows import FlowQuery
from tarry.store.rules.history.sums import MINUTES, decode
from tarry.tasks.step_log import StepLog
from tarry.testing.history_check import Died, HistoryEvent, LimitSet, Started, check
from tarry.testing.ledger import read_end, read_flows
from tarry.testing.leftovers import leftovers
from tests.kill_points.workload import KEY, PARENTS, START, TAKEN_OVER, Host, move, note, outbox

ALL = 10_000
MOST_STEPS = 4
OF_CLAIMS = ("writer", "epoch")
"""Rules that a store breaks that has lost a claim: it gives its epoch once more."""
OLDER = "the store has an older epoch than an attempt had"
"""What the checker says then where two claims of one job were lost, or the job was not claimed again."""


class Told:
    """What the ledger says, in its order."""

    def __init__(self, path: Path) -> None:
        self.lines = path.read_text().splitlines() if path.exists() else []
        self.puts = dict(self._words("put"))
        self.flows = [id for (id,) in self._words("flow")]
        self.starts = Counter(what for (what,) in self._words("start"))
        self.ends = Counter(what for (what,) in self._words("end"))
        self.refused = {what for (what,) in self._words("refused")}
        self.unnamed = {" ".join(words) for words in self._words("unnamed")}
        self.steps = Counter(tuple(words) for words in self._words("step"))
        events = [line for line in self.lines if line.startswith("{")]
        self.history: list[HistoryEvent] = [msgspec.json.decode(line, type=HistoryEvent) for line in events]
        self.pids = {event.pid for event in self.history if isinstance(event, Started)}

    def _words(self, kind: str) -> Iterator[list[str]]:
        return (words[1:] for words in map(str.split, self.lines) if words[0] == kind)


def take_over(directory: Path, urls: list[str], may_lose_claims: bool) -> list[str]:
    """Goes on with what the process left, to the end. may_lose_claims: what was not put, but claimed or ended, may be
    lost."""
    before = Told(directory / "ledger")
    ledger = os.open(directory / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    host = Host(directory, urls, TAKEN_OVER, ledger)
    dead = [Died(host.clock.time - 1, pid=pid) for pid in before.pids]
    wrong = [f"{count} levels were wrong" for count in [host.store.recount(TAKEN_OVER)] if count]
    kept = _kept_steps(host.store)
    if len(urls) > 1:
        move(host.store)
    host.declare()
    host.run()
    told = Told(directory / "ledger")
    wrong += [f"the step {step} was recorded, and ran again" for step in kept if told.steps[step] > before.steps[step]]
    wrong += [*_wrong_jobs(host.store, told), *_wrong_flows(host.store, told), *_left(host.store)]
    wrong += _wrong_sums(host.store, host.clock.time)
    wrong += _wrong_history(host, told, dead, may_lose_claims)
    _forget_all(host)
    wrong += map(str, leftovers(host.store, is_empty=True))
    host.close()
    return [*wrong, *wrong_files(directory)]


def _wrong_history(host: Host, told: Told, dead: list[Died], may_lose_claims: bool) -> Iterator[str]:
    """What contradicts the promises, by their own checker."""
    limit = LimitSet("task:limited", START, 1)
    events = [limit, *told.history, *dead, *read_flows(host.store), *read_end(host.store)]
    return (str(one) for one in check(events) if not (may_lose_claims and (one.rule in OF_CLAIMS or one.text == OLDER)))


def _kept_steps(store: Store) -> set[tuple[str, ...]]:
    """The steps whose results are stored."""
    logs = [StepLog(job.task, job.progress) for job in store.find(Query(task="order", limit=ALL))]
    found = [log.kept(position) for log in logs for position in range(MOST_STEPS)]
    return {(step.name.rpartition("._")[2], "order") for step in found if step is not None}


def _wrong_jobs(store: Store, told: Told) -> Iterator[str]:
    jobs: dict[str, Job] = {ids.text(job.id): job for job in store.find(Query(limit=ALL))}
    for what, id in told.puts.items():
        if id not in jobs:
            yield f"{what} was acknowledged, and is not there"
        elif not told.ends[what]:
            yield f"{what} was acknowledged, and never ran to its end"
    for what in told.refused:
        if told.starts[what]:
            yield f"{what} was surely not stored, by the error, and ran"
    bodies = Counter(job.body for job in jobs.values() if job.task == "note")
    yield from (f"{body!r} is there {count} times" for body, count in bodies.items() if count > 1)
    yield from (f"an error names no file: {text}" for text in told.unnamed)
    for job in jobs.values():
        if job.state is not State.DONE and not is_root(job.id):
            yield f"{job.task} {job.body!r} is {job.state.value}"
    for what, times in told.starts.items():
        # Once, and once more for the kill; one fails at first, and ticks are several jobs.
        if times > (4 if what == "fails" else 2) and what != "tick":
            yield f"{what} ran {times} times"


def _wrong_flows(store: Store, told: Told) -> Iterator[str]:
    rows = [row for row in store.flows.find(FlowQuery()) if not _is_partial(row)]
    if told.flows and [ids.text(row.id) for row in rows] != [told.flows[0][: len(ids.text(rows[0].id)) if rows else 0]]:
        yield f"the flow {told.flows} was acknowledged; there are {rows}"
    for row in rows:
        if (row.phase, row.ends, row.active) != (Phase.ENDED, State.DONE, 0):
            yield f"the flow has not ended: {row}"
    for name, parents in PARENTS.items():
        for parent in parents:
            if told.starts[f"node-{name}"] and not _is_before(told, f"end node-{parent}", f"start node-{name}"):
                yield f"node {name} began before node {parent} had ended"


def _is_partial(row: FlowRow) -> bool:
    """Of a process that died while it stored the flow, which nobody acknowledged."""
    return row.phase is Phase.STORING or b"Abandoned" in row.note


def _is_before(told: Told, first: str, second: str) -> bool:
    return first in told.lines and told.lines.index(first) < told.lines.index(second)


def _left(store: Store) -> Iterator[str]:
    yield from map(str, leftovers(store))
    if note.by_key(KEY) is not None:
        yield f"the key {KEY} is held by a job that has ended"
    if content := outbox().content().jobs:
        yield f"{content} jobs are in the outbox"


def _wrong_sums(store: Store, now: int) -> Iterator[str]:
    """The history counts what there is."""
    while store.history.sum_up(now):
        pass
    kinds = Counter[int]()
    for cell in store.history.read(MINUTES, 0, 2**40).values():
        kinds.update(decode(cell).kinds)
    # The root of a flow is no job that anybody put.
    jobs = [job for job in store.find(Query(limit=ALL)) if not is_root(job.id)]
    states = Counter(job.state for job in jobs)
    if (kinds[PUT], kinds[DONE]) != (len(jobs), states[State.DONE]):
        yield f"the history has {kinds[PUT]} put, {kinds[DONE]} done; there are {len(jobs)}, {states[State.DONE]}"


def _forget_all(host: Host) -> None:
    """All that is kept for a time goes."""
    host.clock.time += 1000 * DAY
    while host.store.flows.tend(host.clock.time):
        pass
    while host.store.prune(host.clock.time, 0):
        pass
    while host.store.history.sum_up(host.clock.time):
        pass


def wrong_files(directory: Path) -> Iterator[str]:
    """What SQLite says of its files there."""
    for path in sorted(directory.glob("*.db")):
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as database:
            if (found := database.execute("PRAGMA integrity_check").get) != "ok":
                yield f"{path.name}: {found}"
