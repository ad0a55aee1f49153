"""A small system that keeps every promise, and its history: what a checker must find nothing in."""

import random
from dataclasses import dataclass, field

from tarry.testing.history_check import (
    Died,
    Ended,
    FinalState,
    FlowEnded,
    HistoryEvent,
    HistorySum,
    LeaseEnded,
    LimitSet,
    NodeOf,
    Put,
    PutUnknown,
    Rescheduled,
    RunAgain,
    Started,
    StepRan,
    StepRecorded,
    StoreRead,
    Withdrawn,
)

MS = 1000
MOST, COUNT, PERIOD = 3, 5, 100 * MS
"""The limits of the task `limited`; each lane has one place."""


@dataclass
class GoodJob:
    put: Put
    due: int
    parents: tuple[str, ...] = ()
    epoch: int = 0
    state: str = "ready"
    owner: str = ""
    steps: int = 0
    is_stored: bool = True

    @property
    def is_finished(self) -> bool:
        return self.state in ("done", "dead", "cancelled")


@dataclass
class GoodSystem:
    """Runs by itself for a number of steps, then until all jobs have ended."""

    chance: random.Random
    now: int = 1_000_000
    events: list[HistoryEvent] = field(default_factory=list)
    jobs: dict[str, GoodJob] = field(default_factory=dict)
    owners: list[str] = field(default_factory=lambda: ["w0", "w1", "w2"])
    starts: list[int] = field(default_factory=list)
    flows: dict[str, list[str]] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def history(self, steps: int = 400) -> list[HistoryEvent]:
        self.events += [
            LimitSet("task:limited", self.now, most=MOST, count=COUNT, period=PERIOD),
            LimitSet("each:limited", self.now, most=1),
        ]
        acts = {
            self.put: 3, self.put_flow: 0.5, self.start: 8, self.end: 5, self.kill: 0.3, self.lose_lease: 0.3,
            self.cancel: 0.2, self.run_again: 0.2, self.put_later: 0.3, self.do_step: 3,
        }  # fmt: skip
        for _ in range(steps):
            self.now += self.chance.randrange(1, 5 * MS)
            (act,) = self.chance.choices(list(acts), list(acts.values()))
            act()
        while not all(job.is_finished for job in self.jobs.values()):
            self.now += self.chance.randrange(1, 5 * MS)
            self.start()
            self.end()
        self.tell_end()
        return self.events

    def new_id(self) -> str:
        self.count += 1
        return f"j{self.count}"

    # What people do

    def put(self) -> None:
        task = self.chance.choice(["plain", "limited", "keyed", "ordered", "durable", "foreign"])
        key = order = lane = None
        if task == "keyed":
            key = self.chance.choice("abc")
            if any(job.put.key == key and not job.is_finished for job in self.jobs.values()):
                return
        order = self.chance.choice("xy") if task == "ordered" else None
        lane = self.chance.choice("mn") if task == "limited" else None
        due = self.now + self.chance.randrange(50 * MS) if task == "plain" else self.now
        self.add(Put(self.new_id(), self.now, key, due, "q", task, lane, order, logged=task != "foreign"))
        if self.chance.random() < 0.1:
            self.events.append(PutUnknown(self.new_id(), self.now, task))

    def add(self, put: Put, parents: tuple[str, ...] = ()) -> None:
        self.jobs[put.job] = GoodJob(put, put.due, parents)
        self.events.append(put)

    def put_flow(self) -> None:
        flow, ids = f"f{len(self.flows)}", [self.new_id() for _ in range(4)]
        wires: list[tuple[str, ...]] = [(), (ids[0],), (ids[0],), (ids[1], ids[2])]
        for id, parents in zip(ids, wires, strict=True):
            self.add(Put(id, self.now, task="node"), parents)
            self.events.append(NodeOf(flow, id, parents))
        self.flows[flow] = ids

    def put_later(self) -> None:
        for job in self.find("ready", task="plain"):
            job.due = self.now + 20 * MS
            self.events.append(Rescheduled(job.put.job, self.now, job.due))

    def cancel(self) -> None:
        for job in self.find("ready", "running", task="plain")[:1]:
            job.state = "cancelled"
            self.events.append(Withdrawn(job.put.job, self.now))

    def run_again(self) -> None:
        for job in self.find("dead", "cancelled", task="plain")[:1]:
            job.state, job.due = "ready", 0
            self.events.append(RunAgain(job.put.job, self.now))

    def find(self, *states: str, task: str) -> list[GoodJob]:
        found = [job for job in self.jobs.values() if job.state in states and job.put.task == task]
        return self.chance.sample(found, min(2, len(found)))

    # What workers do

    def may_start(self, job: GoodJob) -> bool:
        put = job.put
        if job.state != "ready" or job.due > self.now or any(one not in self.ended for one in job.parents):
            return False
        if put.task == "ordered":
            line = [other for other in self.jobs.values() if other.put.order == put.order]
            return next(other for other in line if not other.is_finished) is job
        if put.task == "limited":
            running = [other for other in self.jobs.values() if other.state == "running" and other.put.task == put.task]
            has_rate = len(self.starts) < COUNT or self.starts[-COUNT] + PERIOD <= self.now
            return has_rate and len(running) < MOST and all(other.put.lane != put.lane for other in running)
        return True

    def start(self) -> None:
        able = [job for job in self.jobs.values() if self.may_start(job)]
        if not able:
            return
        job = self.chance.choice(able)
        job.epoch += self.chance.choice([1, 1, 2])
        job.state, job.owner = "running", self.chance.choice(self.owners)
        if job.put.task == "limited":
            self.starts.append(self.now)
        if job.put.logged:
            self.events.append(Started(job.put.job, job.epoch, job.owner, self.now, 7, self.now))

    def end(self) -> None:
        running = [job for job in self.jobs.values() if job.state == "running"]
        if not running:
            return
        job = self.chance.choice(running)
        outcome = self.chance.choice(["done", "done", "done", "failed", "dead"])
        if job.put.task in ("node", "ordered", "foreign"):
            outcome = "done"
        job.due = self.now + 10 * MS if outcome == "failed" else 0
        job.state = "ready" if outcome == "failed" else outcome
        if job.put.logged:
            self.tell_ended(job, outcome)
        self.ended.setdefault(job.put.job, self.now)
        for flow, ids in self.flows.items():
            if ids[-1] == job.put.job:
                self.events.append(FlowEnded(flow, self.now))

    def tell_ended(self, job: GoodJob, outcome: str) -> None:
        told = Ended(job.put.job, job.epoch, job.owner, self.now, outcome)
        settled = Ended(job.put.job, job.epoch, job.owner, self.now, outcome, True, job.due)
        self.events += [told, settled]

    def do_step(self) -> None:
        for job in self.find("running", task="durable"):
            name = f"step {job.steps}"
            self.events.append(StepRan(job.put.job, name, self.now))
            if self.chance.random() < 0.7:
                self.events.append(StepRecorded(job.put.job, name, self.now))
                job.steps += 1

    def kill(self) -> None:
        owner = self.owners.pop(0)
        self.owners.append(f"w{self.now}")
        self.events.append(Died(self.now, owner))
        self.give_back(owner)

    def lose_lease(self) -> None:
        owner = self.chance.choice(self.owners)
        self.events.append(LeaseEnded(owner, self.now))
        for job in self.give_back(owner):
            # It goes on, and its end is not accepted.
            if self.chance.random() < 0.5 and job.put.logged:
                self.events.append(Ended(job.put.job, job.epoch, owner, self.now + MS, "failed"))

    def give_back(self, owner: str) -> list[GoodJob]:
        held = [job for job in self.jobs.values() if job.state == "running" and job.owner == owner]
        for job in held:
            job.state = "ready"
        return held

    def tell_end(self) -> None:
        finals = {id: FinalState(id, job.state, job.epoch) for id, job in self.jobs.items()}
        self.events += [*finals.values(), StoreRead(self.now)]
        for task in {job.put.task for job in self.jobs.values()}:
            states = [finals[id].state for id, job in self.jobs.items() if job.put.task == task]
            counts = {"put": len(states), "done": states.count("done")}
            self.events.append(HistorySum(counts, task))


def good_history(seed: int, steps: int = 400) -> list[HistoryEvent]:
    return GoodSystem(random.Random(seed)).history(steps)
