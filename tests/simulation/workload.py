"""What is enqueued, by whom, and the tasks that run it."""

from collections.abc import Callable
from typing import Any

from tarry import App, Retry, Snooze
from tarry.client.handle import Handle
from tarry.errors import StoreError
from tarry.model.duration import SECOND
from tarry.tasks.running import current
from tests.simulation.ledger import AT_ONCE, AT_ONCE_EACH, PERIOD, STARTS
from tests.simulation.processes import Process

KINDS = (
    "plain",
    "plain",
    "plain",
    "limited",
    "limited",
    "limited",
    "laned",
    "rated",
    "rated",
    "keyed",
    "timed",
    "flow",
    "flow",
)
SEND_AGAIN = 6
"""How often a producer sends again what may not be stored."""


def make_app(process: Process) -> App:
    """The app of one process: all have the same tasks."""
    app = App(process.store, closures=True, retry=Retry(5, base=1))

    def work(value: int, *others: int) -> int:
        running = current.get()
        assert running is not None
        if running.interrupt is not None:
            raise running.interrupt
        name = f"{process.ledger.name_of(running.job.id)}/{running.job.epoch}"
        chance = process.world.draw(f"code:{name}")
        if process.world.happens(f"fails:{name}", 0.12):
            raise ValueError(name)
        if chance < 0.04:
            raise Snooze(chance * 100)
        return value + sum(others)

    app.task(name="plain")(work)
    app.task(name="limited", limit=AT_ONCE["limited"])(work)
    app.task(name="laned", limit=AT_ONCE_EACH["laned"], limit_by=lambda value, *others: str(value % 3))(work)
    app.task(name="rated", rate=f"{STARTS}/{PERIOD / SECOND:g}s")(work)
    app.task(name="timed", timeout=3.0)(work)
    app.task(name="keyed")(work)
    app.task(name="node")(work)
    return app


class Producer(Process):
    """Enqueues, each operation of the plan at its moment; sends again what may not be stored."""

    kind = "producer"

    def begin(self) -> None:
        """Its events are the operations."""

    def do(self, name: str) -> None:
        """Does the operation of that name."""
        draw = self.world.draw
        kind = KINDS[int(draw(f"kind:{name}") * len(KINDS))]
        self._try(name, kind, lambda: self._enqueue(name, kind), 0)

    def _try(self, name: str, kind: str, send: Callable[[], Any], tries: int) -> None:
        try:
            handle = send()
        except StoreError as error:
            self.world.note(f"{name} {kind}: {error}")
            again = error.send_again if error.again is not None else send
            if tries < SEND_AGAIN:
                pause = self.world.between(f"again:{name}:{tries}", 0.2, 4.0)
                self.world.after(pause, self, lambda: self._try(name, kind, again, tries + 1))
            return
        for id in self._ids(handle):
            self.ledger.acknowledged.setdefault(id, name)
            self.ledger.names.setdefault(id, f"{name}.{kind}")
        self.world.note(f"{name} {kind} is acknowledged")
        if self.world.happens(f"cancel:{name}", 0.08) and isinstance(handle, Handle):
            self.world.after(self.world.between(f"cancel-at:{name}", 0, 20), self, lambda: self.cancel(name, handle))

    def cancel(self, name: str, handle: Handle[Any]) -> None:
        """Cancels a job, whatever it does now."""
        try:
            self.world.note(f"{name} is cancelled: {handle.cancel()}")
        except StoreError as error:
            self.world.note(f"{name} is not cancelled: {error}")

    def _enqueue(self, name: str, kind: str) -> Any:
        number = int(name.rpartition(":")[2])
        if kind == "flow":
            return self._enqueue_flow(name, number)
        delay = self.world.between(f"delay:{name}", -10, 15)
        options: dict[str, Any] = {"delay": delay} if delay > 0 else {}
        if kind == "keyed":
            options["key"] = str(number % 2)
        if (priority := int(self.world.draw(f"priority:{name}") * 5) - 2) and kind != "rated":
            options["priority"] = priority
        return self.app.tasks[kind].using(**options).enqueue(number)

    def _enqueue_flow(self, name: str, number: int) -> Any:
        task = self.app.tasks["node"]
        with self.app.flow("diamond") as f:
            first = f.add(task.call(number))
            sides = [f.add(task.call(first.result)) for _ in range(2)]
            f.add(task.call(*(side.result for side in sides)))
        return f.handle

    def _ids(self, handle: Any) -> list[bytes]:
        return [handle.raw_id] if isinstance(handle, Handle) else [bytes.fromhex(handle.id.replace("-", ""))]
