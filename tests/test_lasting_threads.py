"""Threads that live as long as their process: an error of one turn ends none of them."""

import ast
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

import tarry
from tarry.alert.stores import Probe
from tarry.client import waiting
from tarry.client.group_commit import CommitBounds, CommitTicket, GroupCommit
from tarry.client.waiting import Waiter, Waiting
from tarry.embedded.service import EmbeddedService
from tarry.errors import StoreError
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tarry.store.postgres.wakeup import PollingTransport
from tarry.store.shared import backoff
from tarry.store.shared.backoff import TurnGuard
from tarry.store.shared.wakeup.hub import WakeupHub
from tarry.store.shared.wakeup.listener import WakeupListener
from tarry.worker.deadlines import Deadlines, DeadlineThread
from tarry.worker.lease_fence import LeaseFence
from tarry.worker.shutdown import ShutdownLimit
from tests.worker.bench import LIMIT, until

ROOT = Path(tarry.__file__).parent
LASTING = {
    "alert/monitor.py:_run": "_run",
    "alert/stores.py:_serve": "_serve",
    "client/forwarder.py:_run": "_run",
    "client/group_commit.py:_run": "_run",
    "client/limits/permit.py:_prolong_all": "_prolong_all",
    "client/operations/runner.py:_run": "_attempt",
    "client/waiting.py:_watch": "_watch",
    "cli/top/live_screen.py:_run": "_run",
    "cli/top/dashboard.py:_run": "_poll",
    "server/claim_loop.py:_run": "_turn",
    "server/service.py:_keep_fresh": "_keep_fresh",
    "embedded/service.py:_run_keeper": "_run_keeper",
    "keeper/death_hooks.py:_run": "_run",
    "metrics/listener.py:_accept": "_accept",
    "metrics/textfile.py:_run": "_run",
    "push/delivery/coordinator.py:_run": "_run",
    "store/postgres/notify.py:_send_late": "_send_late",
    "store/postgres/wakeup.py:_run": "_run",
    "store/shards/shard.py:_reconnect": "_reconnect",
    "store/shards/topology_follower.py:_run": "_run",
    "store/shared/wakeup/listener.py:_run": "_run",
    "store/sqlite/watch.py:_run": "_run",
    "worker/deadlines.py:_watch": "_watch",
    "worker/lease_fence.py:_watch": "_watch",
    "worker/shutdown.py:_watch": "_watch",
}
"""Each such thread, and the function that sees to its errors."""
TASKS = {"server/serving/server.py": "_watch_certificate", "server/beanstalk/beanstalk_connection.py": "_maintain"}
"""Tasks of event loops that last."""
OTHERS = {
    "alert/dispatcher.py:send": "one message",
    "embedded/service.py:_run": "the main loop of a worker: its error is raised where the block ends",
    "metrics/listener.py:_serve": "one request",
    "metrics/store_figures.py:_run": "one look",
    "metrics/store_overview.py:call": "one look",
    "process/remote_control.py:_scale": "one request",
    "process/server_process.py:_run": "if it ends, so does its process",
    "push/http/daemon_thread.py:work": "one call",
    "runtime/role.py:_flush_streams": "one call",
    "store/shards/shard.py:_connect": "one call",
    "store/payloads/aside.py:_run": "one call",
    "tasks/own_loop.py:_run_loop": "one coroutine",
    "worker/run/loop.py:_serve": "an event loop: what ends it is seen by `loop_exit`, and the worker ends",
    "worker/run/threads.py:serve": "an attempt: its errors are outcomes",
    "worker/worker.py:_run_pump": "if it ends, so does its worker",
}


def _threads() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("store/conformance/", "testing/")):
            continue
        text = path.read_text()
        tree = ast.parse(text) if "Thread(" in text else ast.Module([], [])
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("Thread"):
                for keyword in call.keywords:
                    if keyword.arg == "target":
                        yield f"{name}:{ast.unparse(keyword.value).rpartition('.')[2]}", tree


def test_each_thread_is_known() -> None:
    assert {name for name, _ in _threads()} == {*LASTING, *OTHERS}


def _catches(node: ast.AST) -> bool:
    if isinstance(node, ast.With):
        return any(ast.unparse(item.context_expr) in ("guard", "faults") for item in node.items)
    return isinstance(node, ast.Try) and any(
        handler.type is None or ast.unparse(handler.type) == "Exception" for handler in node.handlers
    )


def test_each_that_lasts_sees_to_any_error() -> None:
    trees = {name: (LASTING[name], tree) for name, tree in _threads() if name in LASTING}
    trees |= {name: (function, ast.parse((ROOT / name).read_text())) for name, function in TASKS.items()}
    for name, (wanted, tree) in trees.items():
        kinds = ast.FunctionDef, ast.AsyncFunctionDef
        found = [node for node in ast.walk(tree) if isinstance(node, kinds) and node.name == wanted]
        assert any(_catches(inner) for node in found for inner in ast.walk(node)), name


class Faulty:
    """Raises an error at its first call."""

    def __init__(self) -> None:
        self.calls = 0
        self.answer: Any = None

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise ZeroDivisionError("a fault")
        return self.answer


Stop: TypeAlias = Callable[[], object]


def _fence(faulty: Faulty) -> Stop:
    faulty.answer = ()
    task = SimpleNamespace(is_async=False)
    held: Any = {b"": SimpleNamespace(interrupt=None, handle=None, started=1, task=task)}
    runners: Any = {False: SimpleNamespace(withdraw=faulty, interrupt=lambda *args: None)}
    leases: Any = SimpleNamespace(extended_at=-(10**12))
    return LeaseFence(leases, held, runners, 0.0).stop


def _deadlines(faulty: Faulty) -> Stop:
    deadlines = Deadlines()
    thread = DeadlineThread(deadlines, faulty)
    running: Any = SimpleNamespace(timeout=0.0)
    deadlines.watch([running], 0.0)
    return thread.stop


def _shutdown(faulty: Faulty) -> Stop:
    worker: Any = SimpleNamespace(
        is_stopping=lambda: True, is_executing=lambda: False, is_urgent=lambda: True, end_by=faulty
    )
    faulty.answer = math.inf
    return ShutdownLimit(worker, (), math.inf).close


def _news(faulty: Faulty) -> Stop:
    class Listener(WakeupListener):
        def listen(self) -> None:
            faulty()

    listener = Listener("news", WakeupHub(), 1.0)
    with listener.lock:
        listener.start()
    return listener.close


def _polling(faulty: Faulty) -> Stop:
    hub = WakeupHub()
    hub.wake_all = faulty  # type: ignore[method-assign]
    sleeper = hub.wakeup()
    sleeper.listen("work")
    transport = PollingTransport(hub)

    def stop() -> None:
        transport.close()
        sleeper.close()

    return stop


def _waiting(faulty: Faulty) -> Stop:
    waiting, id, faulty.answer = Waiting(MemoryStore(), faulty), bytes(16), [Job(bytes(16), "send", b"[]")]
    waiter = Waiter(lambda job: None)
    waiting.add(id, waiter)
    return lambda: waiting.remove(id, waiter)


def _keeper(faulty: Faulty) -> Stop:
    faulty.answer = 0.001
    keeper: Any = SimpleNamespace(tick=faulty, close=lambda: None)
    worker: Any = SimpleNamespace(pump=SimpleNamespace(trouble=""), disarm=lambda: None)
    service = EmbeddedService(worker, keeper, None)
    service._keeper_thread.start()
    return service.end


def _group_commit(faulty: Faulty) -> Stop:
    group = GroupCommit[int, int](lambda items: items, CommitBounds(1))
    finish = group._finish

    def finished(batch: Sequence[CommitTicket[int, int]]) -> None:
        faulty()
        finish(batch)

    # Not in its call, whose errors are answers.
    group._finish = finished  # type: ignore[method-assign]
    for item in range(3):
        group.add(CommitTicket(item))
    return group.close


STARTED = [_fence, _deadlines, _shutdown, _news, _polling, _waiting, _keeper, _group_commit]


@pytest.mark.parametrize("start", STARTED)
def test_it_goes_on_after_an_error(
    start: Callable[[Faulty], Stop], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(waiting, "POLL_INTERVAL", 0.01)
    faulty = Faulty()
    stop = start(faulty)
    until(lambda: faulty.calls > (1 if start is _deadlines else 2))
    stop()
    assert "failed; trying again" in caplog.text
    assert "a fault" in caplog.text


def test_a_probe_answers_also_after_an_error_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    faulty = Faulty()
    probe = Probe(faulty)
    for is_asked in (1, 2):
        probe.ask()
        assert probe.wait(LIMIT)
        assert isinstance(probe.error, StoreError) is (is_asked == 1)
    probe.close()
    assert "a fault" in caplog.text


def test_a_fence_that_cannot_end_one_attempt_ends_the_others() -> None:
    ended: list[int] = []

    def interrupt(call: Any, why: object) -> None:
        if call.number == 0:
            raise ZeroDivisionError("a fault")
        call.interrupt = why
        ended.append(call.number)

    task = SimpleNamespace(is_async=False)
    held: Any = {n: SimpleNamespace(number=n, interrupt=None, handle=None, started=1, task=task) for n in range(3)}
    runners: Any = {False: SimpleNamespace(withdraw=tuple, interrupt=interrupt)}
    leases: Any = SimpleNamespace(extended_at=-(10**12))
    fence = LeaseFence(leases, held, runners, 0.0)
    until(lambda: ended == [1, 2])
    fence.stop()


def test_a_guard_lets_errors_of_the_interpreter_through() -> None:
    with pytest.raises(KeyboardInterrupt), TurnGuard(logging.getLogger("tarry"), "a thread"):
        raise KeyboardInterrupt
