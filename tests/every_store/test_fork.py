"""What was made before a fork works in the child, on connections of the child's own."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from tarry import App, State
from tarry.store.memory.store import MemoryStore
from tests.worker.bench import LIMIT

CHILDREN, TURNS = 4, 15


def child(use: Callable[[], None]) -> int:
    """The exit status of a forked child that does this: 0 if it went well, in time."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(round(LIMIT))
        use()
        status = 0
    except BaseException:
        import traceback  # noqa: PLC0415 - in the child alone

        traceback.print_exc()
    finally:
        os._exit(status)


class Busy:
    """A thread that uses what the parent has without end, so that forks find its locks taken."""

    def __init__(self, use: Callable[[], object]) -> None:
        self.errors: list[BaseException] = []
        self._use, self._ended = use, threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(LIMIT)
        assert self.errors == []

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                self._use()
            except BaseException as error:
                self.errors.append(error)
                return


def test_a_handle_made_before_a_fork_uses_no_connection_of_the_parent(app: App) -> None:
    @app.task(name="target")
    def target(number: int) -> None: ...

    job, other = target.enqueue(1), target.enqueue(2)
    client, follow = app.client, job.follow(timeout=LIMIT)

    def use() -> None:
        for _ in range(TURNS):
            assert job.record().body == b"[1]"
            assert target.enqueue(3).state == State.READY
        assert client is not app.client
        assert client.store is app.client.store
        assert next(iter(follow)).state == State.READY
        assert other.cancel() or other.state == State.CANCELLED

    in_memory = isinstance(client.store, MemoryStore)
    if in_memory:  # where the child has nothing of what the parent has
        return
    busy = Busy(lambda: (target.enqueue(4), job.record()))
    assert [child(use) for _ in range(CHILDREN)] == [0] * CHILDREN
    busy.end()
    assert other.state == State.CANCELLED
    assert app.client is client
    children = [tally.count for tally in client.store.counts() if tally.state == State.READY]
    assert sum(children) >= CHILDREN * TURNS


def test_a_store_that_was_opened_before_a_fork_is_opened_anew_in_the_child(app: App) -> None:
    @app.task(name="target")
    def target(number: int) -> None: ...

    store = app.client.store
    if isinstance(store, MemoryStore):
        return
    job = target.enqueue(1)

    def use() -> None:
        for turn in range(TURNS):
            found: Any = store.get([job._id])[0]
            assert found.body == b"[1]"
            assert store.kv_cas(f"seen-{os.getpid()}-{turn}", b"1", None)
        store.close()

    busy = Busy(lambda: target.enqueue(4).record())
    assert [child(use) for _ in range(CHILDREN)] == [0] * CHILDREN
    busy.end()
    assert len(store.kv_list("seen-")) == CHILDREN * TURNS
