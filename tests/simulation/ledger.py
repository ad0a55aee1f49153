"""What happened to each job, as the store and the workers did it, with the rules that hold at each moment."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tarry.model.change import Change
from tarry.model.duration import SECOND
from tarry.model.flow.node_ids import flow_of, index_of, is_node, is_root, node_id
from tarry.model.flow.wiring import UNDO_TASK
from tarry.model.flow_rules import wiring_of
from tarry.model.job import Job, State
from tarry.model.outcome import Outcome, Returned
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import kept_places
from tarry.store.rules.base import Exchange, Store
from tarry.tasks.running import Running
from tests.simulation.flow_counts import ASKS, SIZE, fault_in_counts
from tests.simulation.world import Violation, World

if TYPE_CHECKING:
    from tests.simulation.processes import WorkerProcess

AT_ONCE = {"limited": 2}
"""How many jobs of a task may run at once."""
AT_ONCE_EACH = {"laned": 1}
"""How many of a task with the same key of its limit."""
PARENTS = {2: (1,), 3: (1,), 4: (2, 3)}
"""Of each node of a flow, by their indices: all flows are such diamonds."""
STARTS, PERIOD = 3, 5 * SECOND
"""Of the task `rated`."""
TICK = 10
"""Seconds between two ticks of the schedule."""
DRIFT = 5_000
"""Microseconds by which the clock of a host drifts from the store's between two measurements, at most."""


UNTROUBLED = 12 * SECOND
"""Without any failure for so long, a worker has extended its leases, and knows which jobs are not its own."""
PATIENCE = 5 * SECOND
"""Of an outage of this length, and for so long after it, no lease counts as over."""


class CodeRun(Struct, eq=False):
    """A start of a job's code."""

    job: bytes
    epoch: int
    process: Any
    owner: str
    task: str
    begin: int = 0
    ended: int | None = None
    has_returned: bool = False
    calls_store: bool = False
    """It is in its last part, which may be inside of a call of the store: an interrupt waits for the end of that."""


class Ledger:
    """For one run. owners: the worker of each owner's name."""

    def __init__(self, world: World, store: Store) -> None:
        self.world, self.store = world, store
        self.owners: dict[str, WorkerProcess] = {}
        self.names: dict[bytes, str] = {}
        self.acknowledged: dict[bytes, str] = {}
        """The ids that a producer was told are stored, with the operation."""
        self.attempts: defaultdict[bytes, list[CodeRun]] = defaultdict(list)
        self.claimed: dict[bytes, int] = {}
        """The epoch of the last claim of each job."""
        self.ended: dict[bytes, State] = {}
        self.ended_at: dict[bytes, int] = {}
        self.taken: dict[tuple[bytes, int], int] = {}
        """The attempts whose job the store gave to others, as it may, and when."""
        self.cancelled: dict[tuple[bytes, int], int] = {}
        self.born: dict[str, int] = {}
        """When each process began."""
        self.outage = 0, 0
        """From when to when nobody could reach the store, the last time."""
        self.on_start: Callable[[bytes, str], None] = lambda job, name: None
        self.on_death: Callable[[bytes, str], None] = lambda job, name: None
        self._leases: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self.returned: Counter[State] = Counter()
        """How many jobs that had ended so were run again."""
        self.run_again: set[bytes] = set()
        """These jobs, and the flows whose nodes they are."""
        self._undoing: set[bytes] = set()
        self._ended_roots: set[bytes] = set()
        self._rated: list[int] = []
        self.signals: dict[str, int] = {}
        """When it was first known that a signal is stored, by its key."""
        self._steps: dict[tuple[bytes, int], tuple[int, int]] = {}
        """The values of steps that are known to be stored, and since when, by job and number."""
        self.saved_late: set[bytes] = set()
        """The jobs of which a save came late. Known: it takes back the steps that were stored meanwhile."""
        self._waited: set[bytes] = set()
        """The jobs whose wait for a signal is over, which is kept."""
        self._step_runs = 0

    # Steps and signals

    def note_step(self, job: Job, number: int) -> int:
        """The code of a step runs; a value that no other run has."""
        name, stored = self.name_of(job.id), self._steps.get((job.id, number))
        begin = next(each.begin for each in self.attempts[job.id] if each.epoch == job.epoch)
        if stored is not None and stored[1] < begin and job.id not in self.saved_late:
            self.fail(f"step {number} of {name} runs again, and its result is stored")
        self._step_runs += 1
        return self._step_runs

    def note_stored_step(self, job: bytes, number: int, value: int) -> None:
        """A task has got the value of a step, which is stored."""
        stored, _ = self._steps.setdefault((job, number), (value, self.world.now))
        if stored != value and job not in self.saved_late:
            self.fail(f"step {number} of {self.name_of(job)} was {stored}, and is {value} now")

    def note_wait(self, job: bytes, key: str, said: str | None, began: int) -> None:
        """A task has got a signal, or its time is over: None. began: when its code began."""
        name = self.name_of(job)
        self.world.note(f"{name} waits no more: {said}")
        if job in self._waited:
            return
        self._waited.add(job)
        if said is None and self.signals.get(key, began) < began:
            self.fail(f"{name} waited in vain, and the signal {key} is stored")
        if said not in (None, key):
            self.fail(f"{name} got the signal {said} in place of {key}")

    def name_of(self, id: bytes) -> str:
        """The same name in each run of a seed."""
        return self.names.setdefault(id, f"job{len(self.names) + 1}")

    # The workers

    def note_start(self, process: "WorkerProcess", running: Running) -> str:
        """The code of an attempt starts."""
        job = running.job
        name = f"{self.name_of(job.id)}/{job.epoch}"
        self.world.note(f"{process.name} starts {name} {job.task}")
        run = CodeRun(job.id, job.epoch, process, job.owner, job.task, self.world.now)
        for other in self.attempts[job.id]:
            if other.epoch == job.epoch:
                self.fail(f"{name} starts twice")
            if other.ended is None and not other.process.is_dead:
                self._check_overlap(name, *sorted((run, other), key=lambda each: each.epoch))
            if (
                other.has_returned
                and other.epoch < job.epoch
                and not other.process.is_dead
                and (other.job, other.epoch) not in self.taken
                and job.id not in self.run_again
            ):
                self.fail(f"{name} starts, and attempt {other.epoch} has returned, and its worker lives")
        self.attempts[job.id].append(run)
        self._check_code_at_once(name, run)
        self.on_start(job.id, name)
        return name

    def _check_code_at_once(self, name: str, run: CodeRun) -> None:
        """Of a task with a limit, also the code of cancelled jobs counts, until the lease of its worker is over."""
        if run.task not in AT_ONCE:
            return
        on = [
            each
            for runs in self.attempts.values()
            for each in runs
            if each.task == run.task and each.ended is None and not each.process.is_dead
            if (each.job, each.epoch) not in self.taken and self._has_lease(each)
        ]
        if len(on) > AT_ONCE[run.task]:
            self.fail(f"{name} starts: the code of {len(on)} jobs of {run.task} runs at once")

    def _has_lease(self, run: CodeRun) -> bool:
        """Of a cancelled job the place is kept only until the lease is over for the first time."""
        now = self.world.now
        since = self.cancelled.get((run.job, run.epoch), now)
        until = self._lease_at(run.owner, since)
        for at, extended in self._leases[run.owner]:
            if since < at <= until:
                until = max(until, extended)
        return until > now

    def _check_overlap(self, name: str, before: CodeRun, after: CodeRun) -> None:
        beside = f"{name} starts: attempts {before.epoch} and {after.epoch} run side by side"
        if (before.job, before.epoch) not in self.taken.keys() | self.cancelled:
            self.fail(f"{beside}, and nobody may have taken the first from its worker")
        if (before.job, before.epoch) in self.cancelled:
            # Somebody has run it again before the code of the cancelled attempt had ended.
            return
        if before.process.is_fenced and not before.process.was_frozen and not before.calls_store:
            self.fail(f"{beside}, and the worker of the first is fenced")

    def note_last_part(self, running: Running) -> None:
        """The code of an attempt goes on to where it may call the store."""
        for attempt in self.attempts[running.job.id]:
            attempt.calls_store = attempt.calls_store or attempt.epoch == running.job.epoch

    def note_end(self, process: "WorkerProcess", running: Running, outcome: Outcome) -> None:
        """The code of an attempt has ended."""
        self.world.note(
            f"{process.name} ends {self.name_of(running.job.id)}/{running.job.epoch}: {type(outcome).__name__}"
        )
        for attempt in self.attempts[running.job.id]:
            if attempt.epoch == running.job.epoch:
                self._check_noticed(process, running)
                attempt.ended, attempt.has_returned = self.world.now, isinstance(outcome, Returned)

    def _check_noticed(self, process: "WorkerProcess", running: Running) -> None:
        """A worker that reaches the store interrupts what is not its own any more."""
        attempt = running.job.id, running.job.epoch
        since = max(self.taken.get(attempt, 0), self.cancelled.get(attempt, 0))
        if (
            since
            and running.interrupt is None
            and self.world.now - max(since, self._last_trouble(process)) > UNTROUBLED
        ):
            self.fail(f"{self.name_of(running.job.id)}/{running.job.epoch} was taken, and {process.name} never noticed")

    # The store

    def watch(self, caller: str, verb: str, asked: Sequence[Any], answer: Any) -> None:
        """The store has carried out this call."""
        if verb == "exchange":
            self._note_changes(caller, asked[0], answer.valid, asked[5])
            self._note_claims(answer, asked[3], asked[5])
        elif verb == "apply":
            self._note_changes(caller, asked[0], answer, asked[1])
        elif verb == "recount" and answer:
            self.fail(f"{answer} levels were wrong")
        if verb in ("exchange", "extend"):
            self._note_lease(asked[3] if verb == "exchange" else asked[0])
        # Most exchanges find nothing to do.
        is_idle = verb == "exchange" and not answer.jobs and not any(answer.valid)
        if verb in ("exchange", "apply", "insert", "insert_bounded", "change") and not is_idle:
            self._check_rows()

    def _note_lease(self, owner: str) -> None:
        if isinstance(self.store, MemoryStore) and owner:
            self._leases[owner].append((self.world.now, self.store._leases.get(owner, 0)))

    def _lease_at(self, owner: str, moment: int) -> int:
        """Until when the owner had its lease, as the store knew at that moment."""
        return max((until for at, until in self._leases[owner] if at <= moment), default=0)

    def _note_claims(self, answer: Exchange, owner: str, moment: int) -> None:
        for job in answer.jobs:
            name = f"{self.name_of(job.id)}/{job.epoch}"
            self.world.note(f"the store gives {name} to {owner}")
            if job.due > self.world.now + DRIFT:
                self.fail(f"{name} is claimed {(job.due - self.world.now) / SECOND:.3f} s early")
            if job.epoch <= self.claimed.get(job.id, 0):
                self.fail(f"{name} is claimed twice")
            if job.id in self.ended:
                self.fail(f"{name} is claimed, and was {self.ended[job.id].name}")
            self.claimed[job.id] = job.epoch
            if is_node(job.id):
                self._check_parents(job, name)
            if job.task == "rated":
                self._note_rated(name, moment)

    def _check_parents(self, job: Job, name: str) -> None:
        parents = [node_id(flow_of(job.id), index) for index in PARENTS.get(index_of(job.id), ())]
        for parent in self.store.get(parents):
            # One that was done and is run again by hand runs alone.
            if parent is None or (parent.state is not State.DONE and not wiring_of(parent).alone):
                self.fail(f"{name} is claimed before node {index_of(parent.id) if parent else '?'} is done")

    def _note_rated(self, name: str, moment: int) -> None:
        if self.world.now - moment > SECOND:
            # Known: for a claim that the server carries out long after it was sent, the time of the rate is in the
            # future, and counts as that of a clock that was set back. Then one or two jobs start too soon.
            self._rated = []
            return
        self._rated = [*(at for at in self._rated if at > moment - PERIOD + 2 * DRIFT), moment]
        if len(self._rated) > STARTS:
            self.fail(f"{name} is the {len(self._rated)}th start in {PERIOD / SECOND:g} s")

    def _note_changes(self, caller: str, changes: Sequence[Change], valid: Sequence[bool], moment: int) -> None:
        for change, is_made in zip(changes, valid, strict=True):
            name = f"{self.name_of(change.id)}/{change.epoch}"
            to = "gone" if change.to is None else change.to.name
            self.world.note(f"the store: {name} {change.was.name} -> {to} by {caller}{'' if is_made else ': refused'}")
            if not is_made:
                continue
            if change.to is not None and change.to.finished:
                self.ended[change.id] = change.to
                self.ended_at[change.id] = self.world.now
                self._check_end_of(change, name)
            elif change.was.finished:
                self.ended.pop(change.id, None)
                self.ended_at.pop(change.id, None)
                self.returned[change.was] += not is_root(change.id)
                self.run_again |= {change.id, flow_of(change.id)}
            owner = self.owners.get(change.owner)
            if change.was is State.RUNNING and owner is not None and owner.name != caller:
                self._check_taking(caller, name, change, owner, moment)
        self._check_counts(list(compress(changes, valid)))

    def _check_counts(self, changes: Sequence[Change]) -> None:
        """The flows in which these changes, which were made, have done something."""
        for id in {flow_of(change.id) for change in changes if change.node is not None}:
            row = self.store.flows.get(id)
            if row is not None and (fault := fault_in_counts(self.store, row, id in self.run_again)):
                self.fail(f"{self.name_of(id)}: {fault}")

    def _check_end_of(self, change: Change, name: str) -> None:
        """What is done has ended."""
        runs = [each for each in self.attempts[change.id] if each.epoch == change.epoch]
        if change.to is State.DONE and runs and runs[-1].ended is None:
            self.fail(f"{name} is done, and its code runs")
        if change.to is State.DEAD:
            self.on_death(change.id, name)

    def _check_taking(self, caller: str, name: str, change: Change, owner: "WorkerProcess", moment: int) -> None:
        lease = self._lease_at(change.owner, moment)
        is_cancel = change.to is State.CANCELLED
        (self.cancelled if is_cancel else self.taken)[change.id, change.epoch] = self.world.now
        if is_cancel or owner.is_dead:
            return
        if lease > min(moment, self.world.now) + DRIFT:
            self.fail(f"{name} is taken from {owner.name}, whose lease has {(lease - moment) / SECOND:.1f} s left")
        if moment - self._last_trouble(owner) > UNTROUBLED:
            self.fail(f"{name} is taken from {owner.name}, which nothing has kept from extending its lease")
        begin, end = self.outage
        # A keeper that began since knows of no outage.
        if self.born.get(caller, end) < begin < end - PATIENCE and 0 <= moment - end < PATIENCE:
            self.fail(f"{name} is taken from {owner.name} right after the store was away")

    def _last_trouble(self, process: "WorkerProcess") -> int:
        """Until when something kept it from its work, or from the store."""
        return max(process.born, process.troubled_at, process.frozen_until, self.outage[1])

    def _check_rows(self) -> None:
        """The rules that hold between jobs."""
        if not isinstance(self.store, MemoryStore):
            return
        at_once: defaultdict[tuple[str, str | None], int] = defaultdict(int)
        keys: set[tuple[str, str]] = set()
        for job in self.store._jobs.values():
            self._check_flow_of(job)
            if job.state is State.RUNNING:
                at_once[job.task, None] += job.task in AT_ONCE
                at_once[job.task, job.lane] += job.task in AT_ONCE_EACH
            if job.key is not None and not job.state.finished:
                if (job.task, job.key) in keys:
                    self.fail(f"two jobs of {job.task} hold the key {job.key}")
                keys.add((job.task, job.key))
        for value in self.store._cells.with_prefix(kept_places.PREFIX).values():
            place = kept_places.decode(value)
            at_once[place.task, None] += place.task in AT_ONCE
            at_once[place.task, place.lane] += place.task in AT_ONCE_EACH
        for (task, lane), count in at_once.items():
            most = AT_ONCE.get(task) if lane is None else AT_ONCE_EACH.get(task)
            if most is not None and count > most:
                self.fail(f"{count} jobs of {task} ({lane}) at once")

    def _check_flow_of(self, job: Job) -> None:
        if job.task == UNDO_TASK:
            self._check_undoing(job)
        elif is_root(job.id):
            self._check_root(job)

    def _check_undoing(self, undo: Job) -> None:
        """What a flow has done is undone only once a node has failed that asks for it."""
        if undo.state is State.BLOCKED or undo.id in self._undoing:
            return
        self._undoing.add(undo.id)
        (asks,) = self.store.get([node_id(flow_of(undo.id), ASKS)])
        if asks is not None and asks.state not in (State.DEAD, State.CANCELLED):
            self.fail(f"a flow is undone, and its node that would ask for it is {asks.state.name}")

    def _check_root(self, root: Job) -> None:
        """A flow ends well once all of its nodes have, and badly if one has not."""
        if not root.state.finished:
            self._ended_roots.discard(root.id)
        elif root.id not in self._ended_roots:
            self._ended_roots.add(root.id)
            nodes = self.store.flows.nodes(root.id, 0, SIZE)
            states = {State.DONE if wiring_of(job).alone else job.state for job in nodes}
            has_failed = not states.isdisjoint((State.DEAD, State.CANCELLED))
            if root.state is State.DONE and states != {State.DONE}:
                self.fail(f"{self.name_of(root.id)} is done, and not all of its nodes are")
            if root.state is State.DEAD and not has_failed and root.id not in self._undone_flows():
                self.fail(f"{self.name_of(root.id)} is dead, and none of its nodes has failed")

    def _undone_flows(self) -> set[bytes]:
        return {flow_of(id) for id in self._undoing}

    def fail(self, text: str) -> None:
        """Violation."""
        self.world.note(f"VIOLATION: {text}")
        self.world.broken = self.world.broken or text
        raise Violation(text)
