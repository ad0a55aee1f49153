"""What is enqueued, by whom, and the tasks that run it."""

from collections.abc import Callable
from typing import Any

from tarry import App, Cron, Retry, Snooze, step, wait_for
from tarry.client.handle import Handle
from tarry.errors import StoreError
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.tasks.durable.step_records import step_records
from tarry.tasks.running import current
from tests.simulation.ledger import AT_ONCE, AT_ONCE_EACH, PERIOD, STARTS, TICK
from tests.simulation.processes import Process

KINDS = {"plain": 3, "limited": 3, "laned": 1, "rated": 2, "keyed": 1, "timed": 1}
"""What is enqueued in each run, and how often beside the others."""
MORE_KINDS = {"flow": 2, "undone": 3, "stepped": 3, "waiting": 3}
"""Each of them in about half of the runs."""
OFTEN_CANCELLED = ("flow", "undone", "keyed")
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
        if process.world.happens(f"fails:{name}", 0.4 if running.job.task == "risky" else 0.12):
            raise ValueError(name)
        if chance < 0.04:
            raise Snooze(chance * 100)
        return value + sum(others)

    def stepped(value: int) -> int:
        return value + sum(_run_step(process, require_job(), number) for number in range(3))

    def waiting(value: int, seconds: float | None) -> int:
        began, job = process.world.now, require_job()
        said = wait_for("go", key=str(value), timeout=seconds)
        # An attempt before may have stored that the time was over, and was interrupted before it got the answer.
        if not any(record.done for record in step_records(job)):
            process.ledger.note_wait(job.id, str(value), said, began)
        return work(value)

    def ticked(value: int) -> int:
        return value

    app.task(name="plain")(work)
    app.task(name="stepped")(stepped)
    app.task(name="waiting")(waiting)
    app.task(name="risky", retry=None)(work)
    app.task(name="unwork")(work)
    app.task(name="ticked", cron=Cron(f"@every {TICK}s", args=(0,), missed="all"))(ticked)
    app.task(name="limited", limit=AT_ONCE["limited"])(work)
    app.task(name="laned", limit=AT_ONCE_EACH["laned"], limit_by=lambda value, *others: str(value % 3))(work)
    app.task(name="rated", rate=f"{STARTS}/{PERIOD / SECOND:g}s")(work)
    app.task(name="timed", timeout=3.0)(work)
    app.task(name="keyed")(work)
    app.task(name="node")(work)
    return app


def require_job() -> Job:
    """The job whose code this is."""
    running = current.get()
    assert running is not None
    return running.job


def _run_step(process: Process, job: Job, number: int) -> int:
    """A durable step of a job, which must not run again once its result is stored."""

    def once() -> int:
        return process.ledger.note_step(job, number)

    name = process.ledger.name_of(job.id)
    value = step.named(f"step{number}")(once)
    running = current.get()
    assert running is not None
    process.ledger.note_stored_step(job.id, number, value)
    process.world.wait(process.world.between(f"step:{name}:{number}", 0.0, 1.0))
    if running.interrupt is not None:
        raise running.interrupt
    if process.world.happens(f"fails:{name}/{running.job.epoch}/{number}", 0.2):
        raise ValueError(name)
    return value


class Producer(Process):
    """Enqueues, each operation of the plan at its moment; sends again what may not be stored."""

    kind = "producer"

    def begin(self) -> None:
        """Its events are the operations."""
        self.began: dict[str, int] = {}
        """When each of them was begun."""

    def do(self, name: str) -> None:
        """Does the operation of that name."""
        draw = self.world.draw
        self.began.setdefault(name, self.world.now)
        kinds = [kind for kind, count in self._kinds().items() for _ in range(count)]
        kind = kinds[int(draw(f"kind:{name}") * len(kinds))]
        self._try(name, kind, lambda: self._enqueue(name, kind), 0)

    def _kinds(self) -> dict[str, int]:
        return KINDS | {kind: count for kind, count in MORE_KINDS.items() if self.world.one_of(kind, True, False)}

    def _try(self, name: str, kind: str, send: Callable[[], Any], tries: int) -> None:
        try:
            handle = send()
        except StoreError as error:
            self.world.note(f"{name} {kind}: {error}")
            again = error.send_again if error.again is not None else send
            if tries < SEND_AGAIN:
                pause = self.world.between(f"again:{name}:{tries}", 0.2, 4.0)
                self.world.after(pause, self, lambda: self._try(name, kind, again, tries + 1))
            elif kind == "waiting":
                # It may be stored all the same, and would wait for ever.
                self._signal_later(name)
            return
        for id in self._ids(handle):
            if self.ledger.ended_at.get(id, self.began[name]) < self.began[name]:
                self.ledger.fail(f"{name} got a job that had ended before")
            self.ledger.acknowledged.setdefault(id, name)
            self.ledger.names.setdefault(id, f"{name}.{kind}")
        self.world.note(f"{name} {kind} is acknowledged")
        if self.world.happens(f"cancel:{name}", 0.2 if kind in OFTEN_CANCELLED else 0.08):
            self.world.after(self.world.between(f"cancel-at:{name}", 0, 20), self, lambda: self.cancel(name, handle))
        if not isinstance(handle, Handle) and self.world.happens(f"retry:{name}", 0.3):
            self.world.after(self.world.between(f"retry-at:{name}", 5, 50), self, lambda: self.retry(name, handle))
        if kind == "waiting":
            self._signal_later(name)

    def _signal_later(self, name: str) -> None:
        pause = self.world.between(f"signal-at:{name}", 0, 20)
        self.world.after(pause, self, lambda: self._signal(name, name.rpartition(":")[2]))

    def _signal(self, name: str, key: str) -> None:
        """Sends a signal until it is known to be stored."""
        try:
            woken = self.app.signal("go", key=key, value=key)
        except StoreError as error:
            self.world.note(f"{name} signal: {error}")
            self.world.after(2.0, self, lambda: self._signal(name, key))
            return
        self.world.note(f"{name} signal: woke {woken}")
        self.ledger.signals.setdefault(key, self.world.now)

    def retry(self, name: str, handle: Any) -> None:
        """Runs a job or a flow again that has failed."""
        try:
            self.world.note(f"{name} is tried again: {handle.retry()}")
        except StoreError as error:
            self.world.note(f"{name} is not tried again: {error}")

    def cancel(self, name: str, handle: Any) -> None:
        """Cancels a job or a flow, whatever it does now."""
        try:
            self.world.note(f"{name} is cancelled: {handle.cancel()}")
            if self.world.happens(f"again:{name}", 0.5):
                pause = self.world.between(f"again-at:{name}", 0, 10)
                self.world.after(pause, self, lambda: self.retry(name, handle))
        except StoreError as error:
            self.world.note(f"{name} is not cancelled: {error}")

    def _enqueue(self, name: str, kind: str) -> Any:
        number = int(name.rpartition(":")[2])
        if kind == "flow":
            return self._enqueue_flow(number)
        if kind == "undone":
            return self._enqueue_undone(number)
        if kind == "waiting":
            seconds = self.world.between(f"timeout:{name}", 2, 30) if self.world.draw(f"timed:{name}") < 0.5 else None
            return self.app.tasks[kind].enqueue(number, seconds)
        delay = self.world.between(f"delay:{name}", -10, 15)
        options: dict[str, Any] = {"delay": delay} if delay > 0 else {}
        if kind == "keyed":
            options["key"] = str(number % 2)
        if (priority := int(self.world.draw(f"priority:{name}") * 5) - 2) and kind != "rated":
            options["priority"] = priority
        return self.app.tasks[kind].using(**options).enqueue(number)

    def _enqueue_undone(self, number: int) -> Any:
        """A diamond one of whose sides asks for all to be undone if it fails; the other does not."""
        task, risky, undo = (self.app.tasks[name] for name in ("node", "risky", "unwork"))
        with self.app.flow("undone") as f:
            first = f.add(task.call(number), undo=undo.call())
            one = f.add(risky.call(first.result), on_failure="compensate", undo=undo.call())
            other = f.add(risky.call(first.result), undo=undo.call())
            f.add(task.call(one.result, other.result))
        return f.handle

    def _enqueue_flow(self, number: int) -> Any:
        task = self.app.tasks["node"]
        with self.app.flow("diamond") as f:
            first = f.add(task.call(number))
            sides = [f.add(task.call(first.result)) for _ in range(2)]
            f.add(task.call(*(side.result for side in sides)))
        return f.handle

    def _ids(self, handle: Any) -> list[bytes]:
        return [handle.raw_id] if isinstance(handle, Handle) else [bytes.fromhex(handle.id.replace("-", ""))]
