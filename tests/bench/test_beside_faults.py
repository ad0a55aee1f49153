"""The judge of `bench/beside_faults` counts what a ledger says, and tells it; without the projects themselves."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.beside_faults import tasks
from bench.beside_faults.judge import RUNNING, STORED, Verdict, judge
from bench.beside_faults.network import CuttableNetwork
from bench.beside_faults.table import tell
from tarry.testing.history_check import read_ledgers
from tarry.testing.history_events import Died, Ended, FinalState, HistoryEvent, Put, Started, StoreRead

SECOND = 1_000_000
FAULT = 10 * SECOND


def put(job: str, due: int = 0, task: str = "work") -> Put:
    return Put(job, SECOND, due=due, task=task)


def ran(job: str, begun: int, ended: int | None, pid: int = 1) -> list[HistoryEvent]:
    """An attempt; ended: None, it did not end. Seconds."""
    start = Started(job, begun * SECOND, str(pid), begun * SECOND, pid)
    return [start] if ended is None else [start, Ended(job, start.epoch, start.owner, ended * SECOND, "done")]


def seen(*events: HistoryEvent, over: int = 100, schedules: int = 0) -> Verdict:
    return judge([*events, StoreRead(over * SECOND, False)], FAULT, schedules)


def test_what_ran_once_is_done() -> None:
    verdict = seen(put("a"), put("b"), *ran("a", 2, 3), *ran("b", 11, 14))
    assert verdict == Verdict(2, 0, 0, 0, 0, 0.0, 4.0, 0, None, 90.0)
    assert tell(verdict) == "all 2 done after 4 s"


def test_what_never_ended_is_lost_unless_the_store_has_it() -> None:
    verdict = seen(put("a"), put("b"), put("c"), *ran("a", 9, None), *ran("c", 2, 3), FinalState("b", STORED, 0))
    assert (verdict.jobs, verdict.lost, verdict.waiting) == (3, 1, 1)
    assert tell(verdict) == "**lost 1 of 3**; 1 of 3 not within 90 s"


def test_what_still_runs_is_not_lost() -> None:
    assert seen(put("a"), *ran("a", 99, None), FinalState("a", RUNNING, 0)).waiting == 1


def test_two_ends_are_told_and_two_starts_are_not() -> None:
    twice = seen(put("a"), put("b"), *ran("a", 2, 3), *ran("a", 4, 5), *ran("b", 2, None), *ran("b", 4, 5))
    assert twice.twice == 1
    assert "1 of 2 done twice" in tell(twice)


def test_a_job_that_began_before_its_time_is_early() -> None:
    verdict = seen(put("a", 20 * SECOND), put("b", 20 * SECOND), *ran("a", 12, 13), *ran("b", 20, 21))
    assert (verdict.early, verdict.early_by) == (1, 8.0)
    assert "1 of 2 early, by up to 8 s" in tell(verdict)


def test_a_tenth_of_a_second_is_not_early() -> None:
    begun = Started("a", 1, "1", 20 * SECOND - 100_000, 1)
    assert seen(put("a", 20 * SECOND), begun).early == 0
    assert seen(put("a", 20 * SECOND + 1), begun).early == 1


def test_what_was_cut_off_says_when_it_began_again() -> None:
    events = [*ran("a", 9, None, pid=7), Died(FAULT, pid=7), *ran("a", 25, 27, pid=8)]
    verdict = seen(put("a"), put("b"), *ran("b", 8, 9, pid=7), *events)
    assert (verdict.interrupted, verdict.again_after) == (1, 15.0)
    assert tell(verdict) == "all 2 done after 17 s; 1 cut off, again after 15 s"


def test_what_ended_before_the_kill_was_not_cut_off() -> None:
    verdict = seen(put("a"), *ran("a", 8, 9, pid=7), Died(FAULT, pid=7), *ran("a", 25, 27, pid=8))
    assert (verdict.interrupted, verdict.again_after, verdict.twice) == (0, None, 1)


def test_poison_is_no_job_of_the_count() -> None:
    events = [put("p", task="die"), put("a"), *ran("a", 11, 12), *ran("p", 11, None), *ran("p", 40, None)]
    over = seen(*events, FinalState("p", STORED, 0))
    assert (over.jobs, over.lost) == (1, 0)
    assert tell(over) == "all 1 done after 2 s; it ran 2 times, then is kept"
    assert tell(seen(*events)).endswith("it ran 2 times, then is gone")


def test_poison_that_ran_just_now_goes_on() -> None:
    events = [put("p", task="hog"), *ran("p", 11, None), *ran("p", 71, None)]
    assert tell(seen(*events, FinalState("p", STORED, 0))).endswith("**it ran 2 times and goes on**")
    assert tell(seen(*events, FinalState("p", RUNNING, 0))).endswith("**it ran 2 times and goes on**")
    assert tell(seen(*events)).endswith("it ran 2 times, then is gone")


def test_ticks_are_counted_by_schedule() -> None:
    ticks = [*ran("tick-0", 60, 60), *ran("tick-0", 60, 61), *ran("tick-1", 60, 60)]
    verdict = seen(*ticks, schedules=3)
    assert (verdict.doubled, verdict.missed) == (1, 1)
    assert tell(verdict) == "1 of 3 ticks twice; 1 of 3 ticks missed"
    assert tell(seen(*ran("tick-0", 60, 60), schedules=1)) == "1 of 1 ticks once"


def test_ticks_are_nothing_where_no_schedule_is_judged() -> None:
    verdict = seen(put("a"), *ran("a", 11, 12), *ran("tick-0", 60, 60), *ran("tick-0", 60, 60))
    assert tell(verdict) == "all 1 done after 2 s"


def test_what_tasks_write_is_a_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tasks.LEDGER, str(tmp_path / "ledger"))
    tasks.write("put", "a-1", at=tasks.now(), due=0, task="work")
    tasks.perform("a-1", "work", 0.0)
    tasks.tick(0)
    skipped: list[str] = []
    events = list(read_ledgers([tmp_path / "ledger"], skipped))
    assert [type(event) for event in events] == [Put, Started, Ended, Started, Ended]
    assert not skipped
    verdict = judge(events, tasks.now(), 1)
    assert (verdict.jobs, verdict.lost, verdict.doubled, verdict.missed) == (1, 0, 0, 0)


class _Counter(socketserver.StreamRequestHandler):
    """Answers each line with how many have come."""

    def handle(self) -> None:
        for _ in self.rfile:
            self.server.lines += 1  # type: ignore[attr-defined]
            self.wfile.write(b"%d\n" % self.server.lines)  # type: ignore[attr-defined]


@pytest.fixture
def counter() -> Iterator[socketserver.ThreadingTCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Counter) as server:
        server.daemon_threads = True
        server.lines = 0  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize(("way", "came"), [(b"a", 2), (b"q", 1)])
def test_a_cut_network_loses_the_answer_or_all(counter: socketserver.ThreadingTCPServer, way: bytes, came: int) -> None:
    network = CuttableNetwork(counter.server_address[1])
    try:
        with socket.create_connection(("127.0.0.1", network.port), 30) as line:
            line.sendall(b"x\n")
            assert line.recv(10) == b"1\n"
            with socket.create_connection(("127.0.0.1", network.cutter), 30) as cutter:
                cutter.sendall(way)
                assert cutter.recv(1) == b"k"
            line.sendall(b"x\n")
            assert _rest_of(line) == b""
        assert counter.lines == came  # type: ignore[attr-defined]
        with socket.create_connection(("127.0.0.1", network.port), 30) as line:
            line.sendall(b"x\n")
            assert line.recv(10) == b"%d\n" % (came + 1)
    finally:
        network.close()


def _rest_of(line: socket.socket) -> bytes:
    try:
        return line.recv(10)
    except ConnectionResetError:
        return b""
