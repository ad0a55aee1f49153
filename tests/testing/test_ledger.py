"""What a ledger says of real attempts: each start and end is there, and the checker finds nothing in it."""

import asyncio
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tarry import App, Cancel, Retry, Snooze, current_job, current_jobs, fan_out, wait_for
from tarry.client.clock import FakeClock
from tarry.client.flows.node import FanOut
from tarry.client.tasks.fan_out import add_nodes
from tarry.store.rules.base import Query, Store
from tarry.testing.history_check import (
    Died,
    Ended,
    FinalState,
    HistoryEvent,
    HistorySum,
    NodeOf,
    Started,
    StoreRead,
    check,
    read_ledgers,
)
from tarry.testing.ledger import Ledger
from tests.cli.project import until


class Shop:
    """An app whose jobs run here, with its ledger."""

    def __init__(self, directory: Path) -> None:
        self.app = App(f"sqlite:///{directory}/tarry.db", retry=Retry(1, base=0.001, jitter=0), closures=True)
        self.ledger = Ledger(directory / "ledger")
        self.app.middleware("run")(self.ledger.run)

    @property
    def store(self) -> Store:
        return self.app.client.store

    def run(self) -> None:
        """Runs all jobs to their end, and writes down what the store says."""
        until(lambda: self.app.drain() >= 0 and all(one.state.finished for one in self.store.find(Query())))
        self.ledger.read_store(self.store)
        self.ledger.read_sums(self.store)

    def history(self) -> list[HistoryEvent]:
        skipped: list[str] = []
        found = list(read_ledgers([self.ledger.path], skipped))
        assert skipped == []
        return found

    def outcomes(self) -> list[str]:
        return [event.outcome for event in self.history() if isinstance(event, Ended)]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.app.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_each_attempt_begins_and_ends_in_it(shop: Shop, is_async: bool) -> None:
    tries = Counter[str]()

    def work(what: str) -> object:
        tries[what] += 1
        if what == "fail":
            raise ValueError(what)
        if what == "cancel":
            raise Cancel("no")
        return Snooze(0.001) if what == "snooze" and tries[what] == 1 else None

    async def awork(what: str) -> object:
        await asyncio.sleep(0)
        return work(what)

    task = shop.app.task(name="work")(awork if is_async else work)
    for what in ("done", "fail", "snooze", "cancel"):
        shop.ledger.put(task.enqueue(what), task="work")
    shop.run()
    assert check(shop.history()) == []
    assert Counter(shop.outcomes()) == {"done": 2, "failed": 2, "snoozed": 1, "cancelled": 1}
    starts = [event for event in shop.history() if isinstance(event, Started)]
    assert len(starts) == 6
    assert all(start.pid == os.getpid() and start.owner and 0 < start.claimed <= start.at for start in starts)
    (sums,) = (event for event in shop.history() if isinstance(event, HistorySum))
    assert sums.counts == {"put": 4, "done": 2, "dead": 1, "cancelled": 1, "expired": 0}


def test_an_attempt_that_sleeps_or_takes_too_long_ends_in_it(shop: Shop) -> None:
    @shop.app.task(name="doze")
    def doze() -> None:
        wait_for("go", key="1")

    @shop.app.task(name="spin", timeout=0.05, retry=None)
    def spin() -> None:
        while True:
            time.sleep(0.001)

    shop.ledger.put(doze.enqueue(), spin.enqueue())
    shop.app.drain()
    shop.app.signal("go", key="1", value=1)
    shop.run()
    assert check(shop.history()) == []
    assert Counter(shop.outcomes()) == {"suspended": 1, "done": 1, "interrupted": 1}


def test_a_batch_writes_its_attempts_itself(shop: Shop) -> None:
    @shop.app.task(name="together", batch=10)
    def together(numbers: list[int]) -> None:
        shop.ledger.record_start(*current_jobs())
        shop.ledger.record_end("done", *current_jobs())

    shop.ledger.put(*together.enqueue_many([(1,), (2,), (3,)]))
    shop.run()
    assert check(shop.history()) == []
    assert shop.outcomes() == ["done"] * 3


def test_the_nodes_of_a_flow_come_after_their_parents(shop: Shop) -> None:
    @shop.app.task(name="work")
    def work(number: int) -> int:
        return number

    @shop.app.task(name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    flow = shop.app.chord([work.call(n) for n in range(3)], total.call())
    shop.run()
    shop.ledger.read_flows(shop.store)
    nodes = {event.job: event for event in shop.history() if isinstance(event, NodeOf)}
    *group, last = [job.id for job in shop.app.flows.get(flow.id).nodes()]
    assert [nodes[id].parents for id in group] == [()] * 3
    assert sorted(nodes[last].parents) == sorted(group)
    assert {node.flow for node in nodes.values()} == {flow.id}
    history = shop.history()
    assert [one.rule for one in check(history) if one.rule != "sum"] == []
    early = [event for event in history if not isinstance(event, Ended) or event.job not in group]
    gone = [event for event in early if not isinstance(event, FinalState) or event.job not in group]
    assert {one.rule for one in check(gone)} >= {"parents"}


def test_nodes_that_nothing_wakes_are_no_parents(shop: Shop) -> None:
    """A worker died after it had added nodes, and before it could store the end of the job that added them."""

    @shop.app.task(name="work")
    def work(number: int) -> int:
        return number

    @shop.app.task(name="split")
    def split() -> list[int]:
        fan = fan_out([work.call(1), work.call(2)])
        add_nodes(current_job().running.job, cast("FanOut", fan))
        return fan

    @shop.app.task(name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    with shop.app.flow("sum") as flow:
        flow.add(total.call(flow.add(split.call()).result))
    shop.app.drain()
    shop.ledger.read_store(shop.store, drained=False)
    shop.ledger.read_flows(shop.store)
    history = shop.history()
    nodes = [event for event in history if isinstance(event, NodeOf)]
    assert Counter(len(node.parents) for node in nodes) == {0: 5, 3: 1}
    assert check(history) == []


def test_what_is_lost_or_early_is_found_in_it(shop: Shop) -> None:
    @shop.app.task(name="work")
    def work() -> None:
        pass

    shop.ledger.put(work.enqueue(), task="work", due=shop.ledger.now() + 10**9)
    shop.ledger.put("nobody knows it")
    shop.run()
    assert [violation.rule for violation in check(shop.history())] == ["lost", "early", "sum"]


def test_the_store_is_read_in_pages(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.testing.ledger._READ_AT_ONCE", 2)

    @shop.app.task(name="work")
    def work(number: int) -> None:
        pass

    jobs = work.enqueue_many([(n,) for n in range(5)])
    shop.ledger.read_store(shop.store, drained=False, kept=7)
    told = shop.history()
    assert [event.job for event in told if isinstance(event, FinalState)] == [job.id for job in jobs]
    read = told[-1]
    assert isinstance(read, StoreRead)
    assert (read.drained, read.kept) == (False, 7)


def test_processes_write_whole_lines_beside_each_other(tmp_path: Path) -> None:
    clock = FakeClock(7)
    ledger = Ledger(tmp_path / "ledger", clock.now)
    children = [_child(ledger, 1000 * (number + 1)) for number in range(3)]
    for pid in children:
        os.kill(pid, signal.SIGCONT)
        assert os.waitpid(pid, 0)[1] == 0
    skipped: list[str] = []
    found = list(read_ledgers([ledger.path], skipped))
    assert skipped == []
    assert sorted(event.pid for event in found if isinstance(event, Died)) == sorted(
        1000 * (number + 1) + n for number in range(3) for n in range(100)
    )
    assert {event.at for event in found if isinstance(event, Died)} == {7}


def _child(ledger: Ledger, first: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            for number in range(100):
                ledger.record_death(first + number)
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def test_events_of_which_a_part_is_written_are_told(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.write(Died(1))
    room = ledger.path.stat().st_size + 5
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(OSError, match="only a part of the events was written"):
            ledger.write(Died(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    skipped: list[str] = []
    assert list(read_ledgers([ledger.path], skipped)) == [Died(1)]
    assert skipped == [f"{ledger.path}:2"]
