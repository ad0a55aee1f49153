"""The simulated hosts and their processes: workers with the real pump, keepers, producers."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import tarry.keeper.chores
import tarry.keeper.death_hooks  # noqa: F401 - an app imports them when it makes a keeper: then they had the real time
from tarry import App
from tarry.client.clock import CHECKED_EVERY, Clock, elapsed
from tarry.errors import StoreError
from tarry.model.duration import SECOND
from tarry.model.outcome import Released
from tarry.tasks.interrupts import CalledBack, Interrupted
from tarry.tasks.running import Running
from tarry.worker.pump import Pump
from tarry.worker.run import attempt
from tarry.worker.run.context import AttemptContext
from tarry.worker.run.runner import OutcomeQueue, Runner
from tests.simulation.ledger import Ledger
from tests.simulation.network import Server, SimulatedStore
from tests.simulation.world import START, STEADY_START, Died, World

QUICK = frozenset({"ticked"})
"""Tasks whose runs are over at once."""
TURN = 0.0002
"""Seconds that a step of the pump takes at least, besides its calls."""
FENCED_AFTER = 6.0
"""Seconds from the last extension to the interrupt: half a lease, less what a task has to end and a margin."""


class Host:
    """A machine: what its processes share. drift: how much faster than the store's its clock runs."""

    def __init__(self, world: World, name: str, drift: float) -> None:
        self.world, self.name, self.drift = world, name, drift
        self.trip = world.between(f"trip:{name}", 0.0005, 0.03) if world.draw(f"far:{name}") < 0.3 else 0.004
        """The most seconds of a way to the store."""
        self.wall_ahead = 0
        """Microseconds that its wall clock is ahead of the store's."""
        self.processes: dict[int, Process] = {}
        self.pids = itertools.count(1)

    def steady(self) -> int:
        """Microseconds of the clock that cannot be set."""
        passed = self.world.now - START
        return STEADY_START + passed + int(passed * self.drift)

    def wall(self) -> int:
        """Microseconds of the clock that can be set."""
        return START + self.steady() - STEADY_START + self.wall_ahead


class Process:
    """One process of a host, with an app and a way to the store of its own."""

    kind = "process"

    def __init__(self, host: Host, server: Server, ledger: Ledger, make_app: Callable[["Process"], App]) -> None:
        self.host, self.server, self.ledger, self.world = host, server, ledger, host.world
        self.pid = next(host.pids)
        self.name = f"{host.name}.{self.kind}{self.pid}"
        self.is_dead = False
        self.frozen_until = 0
        self.was_frozen = False
        self.born, self.troubled_at = self.world.now, 0
        """troubled_at: when a call of the store failed last, or was slow."""
        self.cuts: list[tuple[int, int, str]] = []
        """From when to when it is cut off from the store, and how."""
        self._names = itertools.count(1)
        host.processes[self.pid] = self
        ledger.born[self.name] = self.born
        self.store = SimulatedStore(server, self)
        self.app = make_app(self)
        self.clock = Clock(self.store.time, CHECKED_EVERY)
        self.app._clock = self.clock

    def steady(self) -> int:
        return self.host.steady()

    def wall(self) -> int:
        return self.host.wall()

    def new_owner(self) -> str:
        """As `owner.new_name`."""
        return f"{self.host.name}|sim:{self.pid}:{self.pid}:{next(self._names)}"

    def wake(self) -> None:
        """Something woke its sleeper."""

    def start(self) -> None:
        """Begins its first event."""
        self.world.after(0, self, self.begin)

    def begin(self) -> None:
        """The first event."""
        raise NotImplementedError

    def die(self) -> None:
        """It is gone at once, in the middle of whatever it does."""
        self.is_dead = True
        self.world.note(f"{self.name} dies")


class SimulatedRunner(Runner):
    """Runs attempts as events: each takes as long as the seed says, and its code runs at the end."""

    def __init__(self, slots: int, outcomes: OutcomeQueue, process: "WorkerProcess") -> None:
        super().__init__(slots, outcomes, lambda cell: AttemptContext(2**20, process.pump.is_final))
        self._process, self._line = process, list[Running]()
        self.on: dict[Running, str] = {}

    def put(self, batch: Sequence[Running]) -> None:
        self._line += batch
        self._begin()

    def withdraw(self) -> list[Running]:
        back, self._line = self._line, []
        return back

    def waiting(self) -> int:
        return len(self._line)

    def stop(self) -> None: ...

    def interrupt(self, running: Running, why: type[Interrupted]) -> None:
        if running in self.on and running.interrupt is None:
            running.interrupt = why
            world, name = self._process.world, self.on[running]
            world.after(world.between(f"end:{name}", 0.0, 0.4), self._process, lambda: self._end(running), name)

    def _begin(self) -> None:
        while self._line and len(self.on) < self.slots:
            running = self._line.pop(0)
            world, ledger = self._process.world, self._process.ledger
            running.started = self._process.steady() / SECOND
            name = self.on[running] = ledger.note_start(self._process, running)
            # Most are short; some run for longer than a lease.
            power = world.one_of("power", 4, 7, 7)
            seconds = 0.01 + 40.0 * world.draw(f"run:{name}") ** (3 if running.job.task == "limited" else power)
            if running.job.task in QUICK:
                seconds = 0.01
            world.after(seconds, self._process, lambda running=running: self._end(running), name)  # type: ignore[misc]

    def _end(self, running: Running) -> None:
        if running not in self.on:
            return
        self._process.ledger.note_last_part(running)
        outcome = attempt.run_sync(running, self.context_at(0))
        if self._process.is_dead:
            # It died amid a step of the task, which takes that for an error.
            raise Died
        if running not in self.on:
            return
        del self.on[running]
        self._process.ledger.note_end(self._process, running, outcome)
        self.outcomes.add(running, outcome, hurry=not self._line)
        self._begin()


class WorkerProcess(Process):
    """A worker: the real pump, which is turned by events."""

    kind = "worker"
    pump: Pump

    def __init__(self, *args: Any, slots: int, is_fenced: bool, claims_early: bool) -> None:
        super().__init__(*args)
        self._slots, self.is_fenced, self._claims_early = slots, is_fenced, claims_early
        self._is_woken, self._has_stepped = True, False
        self._turn = 0
        """The number of the event that turns it next: others were replaced by an earlier one."""

    def begin(self) -> None:
        self.owner = self.new_owner()
        self.ledger.owners[self.owner] = self
        while True:
            with suppress(StoreError):
                self.app.declare_limits(self.store)
                break
            self.world.wait(1.0)
        self.pump = Pump(
            self.store, self.app.tasks, owner=self.owner, clock=self.clock, rules=self.app.rules, queues={"*": 1}
        )
        self.runner = SimulatedRunner(self._slots, self.pump.outcomes, self)
        self.pump.attach(self.runner, SimulatedRunner(0, self.pump.outcomes, self))
        if self.is_fenced:
            self.world.after(0.2, self, self._look_at_fence, "fence")
        self._turn_in(0)

    def wake(self) -> None:
        if self.world.draw(f"wake:{self.name}:{self._turn}") < 0.9:
            self._is_woken = True
            self._turn_in(self.world.between(f"woken:{self.name}:{self._turn}", 0.0, 0.01))

    def _turn_in(self, seconds: float) -> None:
        self._turn += 1
        turn = self._turn
        self.world.after(max(TURN, seconds), self, lambda: self._step(turn))

    def _step(self, turn: int) -> None:
        if turn != self._turn:
            return
        pump = self.pump
        # As the main loop: it sleeps between two steps only.
        if self._claims_early and self._has_stepped and pump.is_idle:
            pump.sleep(0.0, ())
        seconds, self._has_stepped = pump.step(), True
        # The next step comes even where a wake-up came meanwhile: that is another turn.
        pump.outcomes.awaited = True
        urgent = pump.is_urgent or bool(pump.outcomes.ended)
        if self._is_woken:
            # It listens anew, as the main loop does after each wake-up.
            self._is_woken = False
            pump.look_thoroughly()
        self._turn_in(0.0 if urgent else min(seconds, 1.0))

    def _look_at_fence(self) -> None:
        # The body of `LeaseFence._watch`, whose thread is left out.
        if self.pump.held and elapsed() - self.pump.leases.extended_at >= FENCED_AFTER * SECOND:
            for waiting in self.runner.withdraw():
                self.pump.outcomes.add(waiting, Released(), True)
            for running in list(self.runner.on):
                self.runner.interrupt(running, CalledBack)
        self.world.after(0.2, self, self._look_at_fence, "fence")

    def executing(self) -> list[str]:
        """The ids of the jobs that run now, as its master knows them."""
        return [running.job.id.hex() for running in self.runner.on] if hasattr(self, "runner") else []


class KeeperProcess(Process):
    """A master's keeper."""

    kind = "keeper"

    def begin(self) -> None:
        self.keeper = self.app.keeper(self.store, self.clock)
        self.reports: list[dict[str, Any]] = []
        self._tick()

    def _tick(self) -> None:
        try:
            seconds = self.keeper.tick()
        except StoreError:
            seconds = 1.0
        for report in list(self.reports):
            if self.keeper.handle_message(report) is not None:
                self.reports.remove(report)
        self.world.after(max(0.05, min(seconds, 1.0)), self, self._tick)

    def report_death(self, owner: str, on: Sequence[str]) -> None:
        """The master says that a worker is gone."""
        if hasattr(self, "reports"):
            self.reports.append({"gone": owner, "on": list(on)})
