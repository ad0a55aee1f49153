"""Flows of 50 jobs and more, whose process is killed at a call of the store: at each, one after the other. Another
process goes on, and all of it ends as if nobody had died.

`make test` kills at some of the calls, `make chaos` at all of them (PostgreSQL, MariaDB: at each third).
"""

import signal
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from tarry.client.clock import FakeClock
from tarry.keeper.flows import FlowChores
from tarry.model.duration import DAY
from tarry.model.flow.node_ids import flow_of, index_of, is_root
from tarry.model.flow_row import FlowRow, Phase
from tarry.model.job import Job, State
from tarry.store.opening import open_store
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Store
from tarry.store.rules.flows import FlowQuery
from tarry.tasks.step_log import StepLog
from tarry.testing.history_check import Died, HistoryEvent, Started, check, read_ledgers
from tarry.testing.ledger import read_end, read_flows
from tests.cli.forked import run_module
from tests.servers.redis import RedisServer
from tests.system.flow_story import ENDS

ALL = 10_000
MOST_CALLS = 400
SAMPLED, SAMPLED_OF_SLOW = 30, 60
"""`make test` kills at one of so many calls."""
RESULT = b"%d" % (190 + 45 + (7 + 14 + 21))
"""Of the big flow: of its group, the nodes that were added, and a task with steps."""
LAST = 40
"""The index of the node that has this result; those that were added while it ran come after it."""
REVIEWED = b'"good 42"'
DONE = {"big": 50, "undone": 7, "mended": 3, "withdrawn": 1}
"""How many nodes of each flow are done in the end."""
RUN = ("work", "awork", "add", "split", "order", "aorder", "refuse", "fail_once")
"""The tasks that tell that they ran."""


class Town:
    """A store, and processes that tell the story one after the other."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, directory
        (directory / "time").write_text(str(time.time_ns() // 1000))

    def tell(self, kill_at: int, moment: str) -> int | None:
        """Runs a process to its end: how many calls it made. None: it was killed."""
        done = run_module("tests.system.flow_story", [self.url, str(self.directory), str(kill_at), moment])
        if done.returncode == -signal.SIGKILL:
            return None
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def told(self) -> Counter[tuple[str, str]]:
        """How often each job did each thing."""
        ledger = self.directory / "ledger"
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        return Counter((id, what) for id, _, what in (line.partition(" ") for line in lines))

    def story(self, kill_at: int, moment: str) -> int | None:
        """The story with a process that is killed at this call, and one that takes over. Checks what came of it;
        returns how many calls the first process made, None if it was killed."""
        for name in ("ledger", "history", "mended"):
            (self.directory / name).unlink(missing_ok=True)
        calls = self.tell(kill_at, moment)
        with closing(open_store(self.url)) as store:
            check_counters(store, self._time())
            kept = kept_steps(store)
        before = self.told()
        died = [
            Died(self._time(), owner) for owner in {one.owner for one in self._history() if isinstance(one, Started)}
        ]
        if calls is None:
            assert self.tell(0, moment) is not None
        told = self.told()
        # A step that was kept is never done again.
        assert {step: told[step] for step in kept} == {step: before[step] for step in kept}
        with closing(open_store(self.url)) as store:
            check_end(store, told, kills=int(calls is None))
            assert check([*self._history(), *died, *read_flows(store), *read_end(store, drained=False)]) == []
            check_nothing_stays(store, self._time() + 1000 * DAY)
        return calls

    def _history(self) -> list[HistoryEvent]:
        path = self.directory / "history"
        return list(read_ledgers([path], [])) if path.exists() else []

    def _time(self) -> int:
        return int((self.directory / "time").read_text())


def check_counters(store: Store, now: int) -> None:
    """The counters of each flow are what is there, at whichever call its process died."""
    while store.flows.tend(now):
        pass
    chores = FlowChores(store, FakeClock(now), "test")
    for row in store.flows.find(FlowQuery(phases=(Phase.RUNNING, Phase.CANCELLING, Phase.UNDOING))):
        counted = chores._count(row)
        # `retry` counts the root as active until all failed nodes are ready.
        held = row.active - counted.active if name_of(row) == "mended" else 0
        assert (row.active, row.failed) == (counted.active + held, counted.failed), name_of(row)
        assert held in (0, 1)


def kept_steps(store: Store) -> set[tuple[str, str]]:
    """The steps that are stored of jobs: job and what it told."""
    found = set()
    for job in jobs_of(store):
        log = StepLog(job.task, job.progress)
        steps = (log.kept(position) for position in range(4))
        found |= {(ids.text(job.id), f"step {step.name.rpartition('.')[2]}") for step in steps if step is not None}
    return {(job, step) for job, step in found if step in ("step charge", "step ship", "step thank")}


def check_end(store: Store, told: Counter[tuple[str, str]], kills: int) -> None:
    """Each flow has ended as it should, once; each node that is done has run, and each step once but for the kills."""
    rows = {name_of(row): row for row in store.flows.find(FlowQuery()) if b"Abandoned" not in row.note}
    assert {name: row.ends for name, row in rows.items()} == ENDS
    assert [(row.phase, row.active) for row in rows.values()] == [(Phase.ENDED, 0)] * len(ENDS)
    nodes = {name: nodes_of(store, row) for name, row in rows.items()}
    assert {name: len(done_of(found)) for name, found in nodes.items()} == DONE
    assert [job.note for job in nodes["big"] if job.task == "aorder" or index_of(job.id) == LAST] == [REVIEWED, RESULT]
    for job in done_of([job for found in nodes.values() for job in found]):
        assert told[ids.text(job.id), "ran"] or job.task not in RUN, job.task
    for what, most in (("ran", 2), ("step charge", 1), ("step ship", 1), ("step thank", 1)):
        assert max(count for (_, one), count in told.items() if one == what) <= most + kills
    assert_undone_in_order([what for _, what in told if what.startswith("undo")])


def assert_undone_in_order(undone: list[str]) -> None:
    """The first times that each was undone: backwards."""
    assert undone == ["undo 3", "undo 2", "undo 1"]


def done_of(nodes: list[Job]) -> list[Job]:
    """Those that are done. A process that died while it added nodes has left others, which nothing wakes."""
    return [job for job in nodes if job.state is State.DONE]


def check_nothing_stays(store: Store, later: int) -> None:
    """Once no flow is kept any more, neither is anything of one."""
    while store.flows.tend(later):
        pass
    assert store.find(Query(limit=ALL)) == []
    assert store.flows.find(FlowQuery()) == []
    assert store.flows.awaiting("", ALL) == []


def name_of(row: FlowRow) -> str:
    assert row.root is not None
    return row.root.task.removeprefix("flow:")


def jobs_of(store: Store) -> list[Job]:
    return [job for job in store.find(Query(limit=ALL)) if not is_root(job.id)]


def nodes_of(store: Store, row: FlowRow) -> list[Job]:
    """By index."""
    return sorted((job for job in jobs_of(store) if flow_of(job.id) == row.id), key=lambda job: job.id)


class Place(NamedTuple):
    """A store to test. is_slow: `make chaos` kills at each third call only."""

    fixture: str
    is_slow: bool = False


PLACES = {
    "sqlite": Place("tmp_path"),
    "redis": Place("redis_server"),
    "postgres": Place("postgres_url", is_slow=True),
    "mariadb": Place("mariadb_url", is_slow=True),
}
MOMENTS = ("before", "after")


@pytest.fixture
def town(request: pytest.FixtureRequest, tmp_path: Path) -> Town:
    found = request.getfixturevalue(PLACES[request.param].fixture)
    if isinstance(found, Path):
        return Town(f"sqlite:///{found}/flows.db", tmp_path)
    if isinstance(found, RedisServer):
        found.empty()
        return Town(found.url, tmp_path)
    return Town(str(found), tmp_path)


def kill_at_each(town: Town, moment: str, first: int, step: int) -> None:
    """The story once for each of these calls, until one is beyond the end."""
    for kill_at in range(first, MOST_CALLS, step):
        if town.story(kill_at, moment) is not None:
            return
    raise AssertionError("the story takes too many calls")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("town", PLACES, indirect=True)
def test_a_flow_ends_as_it_should_whatever_call_kills_its_process(
    town: Town, moment: str, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.params["town"]
    # Another part of the story for each, so that all of it has its turn.
    number = list(PLACES).index(name) * len(MOMENTS) + MOMENTS.index(moment)
    kill_at_each(town, moment, 3 + 3 * number, SAMPLED_OF_SLOW if PLACES[name].is_slow else SAMPLED)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("town", PLACES, indirect=True)
def test_a_flow_ends_as_it_should_at_every_call(town: Town, moment: str, request: pytest.FixtureRequest) -> None:
    kill_at_each(town, moment, 1, 3 if PLACES[request.node.callspec.params["town"]].is_slow else 1)
