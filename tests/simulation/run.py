"""One run of a seed: the plan, the faults, the quiet time at its end, and what must hold then."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

from msgspec import Struct

from tarry.model.duration import SECOND
from tarry.model.flow.node_ids import flow_of, index_of, is_node, is_root
from tarry.model.job import Job, State
from tarry.model.schedules.schedule import tick_of
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.history_reading import Period, bring_up_to_date, view
from tarry.store.rules import owner
from tarry.store.rules.base import Query, Store
from tarry.store.rules.history.sums import HOURS
from tests.simulation import end_checks
from tests.simulation.flow_counts import SIZE
from tests.simulation.ledger import TICK, Ledger
from tests.simulation.network import LATE, LOST, REFUSED, Server
from tests.simulation.processes import Host, KeeperProcess, Process, WorkerProcess
from tests.simulation.workload import Producer, make_app
from tests.simulation.world import START, Violation, World, installed

OPERATIONS = 40
TROUBLE = 60
"""Seconds during which faults happen."""
QUIET = 1800
"""Seconds after them by which all must be at rest."""


class Outcome(Struct):
    """What a seed came to. failure: empty if all held."""

    seed: int
    failure: str
    log: list[str]
    chosen: list[str]
    seconds: float = 0.0
    """Of virtual time."""
    starts: int = 0


class Simulation:
    """The hosts of one run, and the plan of its faults."""

    def __init__(self, world: World, store: Store) -> None:
        self.world, self.server = world, Server(world, store)
        self.ledger = Ledger(world, store)
        self.ledger.on_start, self.ledger.on_death = self._maybe_cancel, self._maybe_retry
        self.server.watch, self.server.wake, self.server.kill = self.ledger.watch, self._wake_all, self._end_process
        self.hosts: list[Host] = []
        self.processes: list[Process] = []
        self.producers: list[Producer] = []

    # Processes

    def build(self) -> None:
        """Starts the hosts and plans operations and faults."""
        draw = self.world.draw
        for number in range(self.world.one_of("hosts", 1, 2, 2, 3)):
            host = Host(self.world, f"host{number}", self.world.between(f"drift:{number}", -1e-4, 1e-4))
            host.wall_ahead = int(self.world.between(f"wall:{number}", -5, 5) * SECOND)
            self.hosts.append(host)
            self._start_host(host)
        for number in range(2):
            self._start(Producer(self.hosts[number % len(self.hosts)], self.server, self.ledger, make_app))
        for number in range(OPERATIONS):
            name = f"op:{number}"
            if self.world.keeps(name):
                moment = START + self.world.between(f"at:{name}", 0, TROUBLE * 0.8) * SECOND
                self.world.at(moment, None, lambda name=name: self._produce(name))  # type: ignore[misc]
        for kind, plan in self.faults().items():
            for number in range(int(1 + draw(f"{kind}s") * 4)):
                name = f"{kind}:{number}"
                if self.world.keeps(name):
                    moment = START + self.world.between(f"at:{name}", 1, TROUBLE) * SECOND
                    self.world.at(moment, None, lambda plan=plan, name=name: plan(name))  # type: ignore[misc]

    def _start(self, process: Process) -> None:
        self.processes.append(process)
        if isinstance(process, Producer):
            self.producers.append(process)
        process.start()

    def _start_host(self, host: Host) -> None:
        self._start(KeeperProcess(host, self.server, self.ledger, make_app))
        for _ in range(1 + int(self.world.draw(f"workers:{host.name}") * self.world.one_of("workers", 1, 2, 2))):
            self._start_worker(host)

    def _start_worker(self, host: Host) -> None:
        draw, name = self.world.draw, f"{host.name}:{len(host.processes)}"
        slots = 1 + int(draw(f"slots:{name}") * self.world.one_of("slots", 2, 4))
        is_fenced = draw(f"fenced:{name}") < self.world.one_of("fenced", 0.2, 0.5, 1)
        self._start(
            WorkerProcess(
                host, self.server, self.ledger, make_app, slots=slots, is_fenced=is_fenced,
                claims_early=draw(f"early:{name}") < self.world.one_of("early", 0.2, 0.5, 1),
            )
        )  # fmt: skip

    def _wake_all(self) -> None:
        for process in self.processes:
            if not process.is_dead and process is not self.world.current:
                process.wake()

    def _produce(self, name: str) -> None:
        producer = self.producers[int(self.world.draw(f"producer:{name}") * 2)]
        self.world.at(self.world.now, producer, lambda: producer.do(name))

    def _maybe_cancel(self, id: bytes, name: str) -> None:
        """Somebody cancels a job that has just started."""
        if self.world.happens(f"cancel:{name}", 0.05):
            producer, pause = self.producers[0], self.world.between(f"cancel-at:{name}", 0.0, 0.5)
            self.world.after(pause, producer, lambda: producer.cancel(name, producer.app.get(id)))

    def _maybe_retry(self, id: bytes, name: str) -> None:
        """Somebody runs a node again that is dead."""
        if is_node(id) and index_of(id) <= SIZE and self.world.happens(f"again:{name}", 0.4):
            producer, pause = self.producers[0], self.world.between(f"again-at:{name}", 0.0, 5.0)
            self.world.after(pause, producer, lambda: producer.retry(name, producer.app.get(id)))

    # Faults

    def faults(self) -> dict[str, Callable[[str], None]]:
        """What happens, by the kind of fault."""
        return {
            "kill": self._kill, "storm": self._storm, "cut": self._cut, "freeze": self._freeze, "step": self._step,
            "crash": self._crash, "outage": self._outage,
        }  # fmt: skip

    def _victim(self, name: str) -> Process | None:
        alive = [process for process in self.processes if not process.is_dead and process.kind != "producer"]
        return alive[int(self.world.draw(f"who:{name}") * len(alive))] if alive else None

    def _kill(self, name: str) -> None:
        victim = self._victim(name)
        if victim is not None:
            self._end_process(victim, name)

    def _end_process(self, victim: Process, name: str) -> None:
        """It dies, and another one takes its place after a while."""
        if victim.is_dead or victim.kind == "producer":
            return
        host = victim.host
        on = victim.executing() if isinstance(victim, WorkerProcess) else []
        victim.die()
        pause = self.world.between(f"restart:{name}", 0.1, 8.0)
        if isinstance(victim, KeeperProcess):
            start = lambda: self._start(KeeperProcess(host, self.server, self.ledger, make_app))  # noqa: E731
            self.world.after(pause, None, start)
            return
        self.world.after(pause, None, lambda: self._start_worker(host))
        if self.world.happens(f"report:{name}", 0.7) and hasattr(victim, "owner"):
            for keeper in self.processes:
                if isinstance(keeper, KeeperProcess) and keeper.host is host and not keeper.is_dead:
                    keeper.report_death(victim.owner, on)

    def _crash(self, name: str) -> None:
        """A whole host."""
        if self.world.draw(f"really:{name}") < 0.7:
            return
        host = self.hosts[int(self.world.draw(f"who:{name}") * len(self.hosts))]
        for process in list(host.processes.values()):
            if not process.is_dead and process.kind != "producer":
                process.die()
        self.world.after(self.world.between(f"restart:{name}", 1.0, 30.0), None, lambda: self._start_host(host))

    def _outage(self, name: str) -> None:
        """Nobody reaches the store."""
        if self.world.draw(f"really:{name}") < 0.7 or self.world.now < self.server.away_until:
            return
        end = self.world.now + int(self.world.between(f"for:{name}", 1, 25) * SECOND)
        end = min(end, START + TROUBLE * SECOND)
        self.world.note(f"the store is away until {(end - START) / SECOND:.1f}")
        self.server.away_until, self.ledger.outage = end, (self.world.now, end)

    def _storm(self, name: str) -> None:
        end = self.world.now + int(self.world.between(f"for:{name}", 1, 12) * SECOND)
        self.world.note(f"{name} until {(end - START) / SECOND:.1f}")
        self.server.storms.append((self.world.now, end))

    def _cut(self, name: str) -> None:
        """A process, or a whole host."""
        victim = self._victim(name)
        if victim is None:
            return
        fate = (REFUSED, LOST, LATE)[int(self.world.draw(f"how:{name}") * 3)]
        end = self.world.now + int(self.world.between(f"for:{name}", 0.5, 30) * SECOND)
        is_whole = self.world.draw(f"whole:{name}") < 0.5
        for process in victim.host.processes.values() if is_whole else (victim,):
            if not process.is_dead:
                self.world.note(f"{process.name} is cut off ({fate}) until {(end - START) / SECOND:.1f}")
                process.cuts.append((self.world.now, end, fate))

    def _freeze(self, name: str) -> None:
        victim = self._victim(name)
        if victim is not None:
            victim.was_frozen = True
            victim.frozen_until = self.world.now + int(self.world.between(f"for:{name}", 0.5, 30) * SECOND)
            self.world.note(f"{victim.name} stands still until {(victim.frozen_until - START) / SECOND:.1f}")

    def _step(self, name: str) -> None:
        """The wall clock of a host is set."""
        host = self.hosts[int(self.world.draw(f"who:{name}") * len(self.hosts))]
        host.wall_ahead = int(self.world.between(f"by:{name}", -4000, 4000) * SECOND)
        self.world.note(f"the clock of {host.name} is set")

    # The end

    def go(self) -> None:
        """Runs it to the end. Violation."""
        self.build()
        # Between two ticks of the schedule, so that none is under way.
        self.world.run_until(START + (TROUBLE + TICK // 2) * SECOND)
        self.world.note("the network is whole from now on")
        self.server.is_whole = True
        end = self.world.now + QUIET * SECOND
        self._rest(end)
        # Once more for what is due after the last end: history, levels, lost replies, what people run again.
        self.world.run_until(self.world.now + 40 * SECOND)
        self._rest(end)
        self._check_end()

    def _rest(self, end: int) -> None:
        """Goes on until all is at rest."""
        while not self._is_at_rest():
            if self.world.now >= end:
                raise Violation(f"not at rest: {self._unfinished()}")
            self.world.run_until(self.world.now + TICK * SECOND)

    def _is_at_rest(self) -> bool:
        if self._unfinished():
            return False
        workers = [each for each in self.processes if isinstance(each, WorkerProcess) and not each.is_dead]
        return all(hasattr(each, "pump") and each.pump.is_idle for each in workers)

    def _jobs(self) -> list[Job]:
        return self.server.store.find(Query(limit=100_000))

    def _unfinished(self) -> list[str]:
        jobs = self._jobs()
        # What is left of a flow that has failed stays blocked, for whoever retries the flow.
        ended = {job.id for job in jobs if is_root(job.id) and job.state.finished}
        left = (job for job in jobs if job.state is not State.BLOCKED or flow_of(job.id) not in ended)
        return [f"{self.ledger.name_of(job.id)} {job.state.name}" for job in left if not job.state.finished]

    def _check_end(self) -> None:
        jobs = {job.id: job for job in self._jobs()}
        self._check_stored(jobs)
        self._check_runs(jobs.values())
        self._check_nothing_left()
        self._check_history(jobs.values())
        end_checks.check_ticks([tick_of(job.key) or 0 for job in jobs.values() if job.task == "ticked"], self.world.now)
        end_checks.check_flows(self.server.store, self.ledger.run_again)

    def _check_stored(self, jobs: Mapping[bytes, Job]) -> None:
        """What was acknowledged is there, and nothing twice."""
        for id, name in self.ledger.acknowledged.items():
            if id not in jobs:
                raise Violation(f"{name} was acknowledged and is not stored")
        twice = Counter((job.task, job.body) for job in jobs.values() if not is_node(job.id) and job.key is None)
        for (task, body), count in twice.items():
            if count > 1:
                raise Violation(f"{task}{body.decode()} was enqueued once and is stored {count} times")

    def _check_runs(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            runs = self.ledger.attempts[job.id]
            has_ended = any(each.epoch == job.epoch and each.ended is not None for each in runs)
            if job.state is State.DONE and not is_root(job.id) and not has_ended:
                raise Violation(f"{self.ledger.name_of(job.id)} is done, and its last attempt never ended")

    def _check_nothing_left(self) -> None:
        store = self.server.store
        if self._unfinished():
            raise Violation(f"at the end: {self._unfinished()}")
        if store.owners():
            raise Violation(f"at the end jobs are held: {store.owners()}")
        for name, (_, level) in store.limits().items():
            if level.running:
                raise Violation(f"the level of {name} is {level.running} at the end")
        if store.recount(self.world.now):
            raise Violation("levels were wrong at the end")

    def _check_history(self, jobs: Iterable[Job]) -> None:
        history = self.server.store.history
        bring_up_to_date(history, self.world.now)
        figures = view(history, Period.last(HOURS, 5, self.world.now)).total
        states = Counter(job.state.name.lower() for job in jobs if not is_root(job.id))
        for state in ("done", "dead", "cancelled"):
            ends = states[state] + self.ledger.returned[State[state.upper()]]
            if getattr(figures, state) != ends:
                raise Violation(f"the history counts {getattr(figures, state)} {state}, and {ends} were")
        if figures.put != states.total():
            raise Violation(f"the history counts {figures.put} put, and the store has {states.total()}")


@contextmanager
def simulated_owners(simulation: Simulation) -> Iterator[None]:
    """Inside, the names of owners tell of the simulated processes."""
    world, numbers = simulation.world, iter(range(10**9))

    def find(name: str) -> Process | None:
        scope, _, rest = name.rpartition(":")[0].partition("|sim:")
        here = world.current
        if here is None or not rest or here.host.name != scope:  # type: ignore[attr-defined]
            return None
        return here.host.processes.get(int(rest.split(":")[0]))  # type: ignore[attr-defined,no-any-return]

    def new_name() -> str:
        here = world.current
        return f"nobody|sim:0:0:{next(numbers)}" if here is None else here.new_owner()  # type: ignore[attr-defined]

    def is_dead(name: str) -> bool:
        return (process := find(name)) is not None and process.is_dead

    def is_running(name: str) -> bool:
        process = find(name)
        return process is not None and not process.is_dead and process.frozen_until <= world.now

    def is_local(name: str) -> bool:
        return find(name) is not None

    with patch.multiple(owner, new_name=new_name, is_dead=is_dead, is_running=is_running, is_local=is_local):
        yield


def run(seed: int, without: frozenset[str] = frozenset()) -> Outcome:
    """Runs one seed, but for the choices that are left out."""
    world = World(seed, without)
    store = MemoryStore(lambda: world.now)
    failure = ""
    with installed(world):
        simulation = Simulation(world, store)
        with simulated_owners(simulation):
            try:
                simulation.go()
            except Violation as violation:
                failure = str(violation)
            finally:
                world.end()
    starts = sum(map(len, simulation.ledger.attempts.values()))
    return Outcome(seed, failure, world.log, world.chosen, (world.now - START) / SECOND, starts)
