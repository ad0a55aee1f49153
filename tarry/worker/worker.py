"""A worker: the pump's thread, the slots, the event loop, and what signals say to them."""

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

from msgspec import Struct, field

from tarry.client.client import MAX_BODY
from tarry.client.clock import Clock
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.quantity import quantity
from tarry.store import ids
from tarry.store.base import Store
from tarry.store.shared.bell import FULL, WORK
from tarry.tasks.definition import TaskDefinition
from tarry.worker import capture, owner
from tarry.worker.deadlines import Guard
from tarry.worker.ending import EndLimit
from tarry.worker.gauge import Gauge, NoGauge
from tarry.worker.pump import Pump, RulesFor
from tarry.worker.run.loop import Loop
from tarry.worker.run.terms import KILL_AFTER, Terms
from tarry.worker.run.threads import Threads
from tarry.worker.shares import BY_DEFAULT, BandShares

log = logging.getLogger("tarry.worker")

BEAT_EVERY = 1.0
NO_ANSWER = "it has not answered yet"
NAMED = 5
"""Jobs that are named at the end, at most."""
HEED_EVERY = 0.05
"""Seconds between two looks outside while busy: each is a system call, and every one gives the interpreter away."""


class Settings(Struct, frozen=True):
    """What the workers of a pool have in common. lease in microseconds."""

    queues: Mapping[str, int] = field(default_factory=lambda: {"*": 1})
    threads: int = 1
    coroutines: int = 100
    shares: BandShares = BY_DEFAULT
    lease: int = 15 * SECOND
    max_body: int = MAX_BODY
    kill_after: float = KILL_AFTER
    """Seconds."""
    keep_output: int = 0
    """Bytes of what each job prints and logs; 0: none, and nothing is watched."""
    end_within: float | None = None
    """Seconds after its last job for which a worker that was told to end waits for its store: then its process ends.
    None: as long as it takes."""
    max_jobs: int = 0
    """Jobs after which it claims no more: its master replaces it. 0: it goes on."""


class Outside(Protocol):
    """Who may speak to a worker while it works: signals, and a parent process."""

    def filenos(self) -> Sequence[int]:
        """What becomes readable when there is news."""

    def signals(self) -> Sequence[int]:
        """The signals that came since the last call; does not wait."""

    def parent_lives(self) -> bool:
        """False once the process that looks after this one is gone."""

    def is_open(self) -> bool:
        """False once a job has closed what we hear by: asked after each job, from any thread, so without a wait."""
        return True

    def is_whole(self) -> bool:
        """The same, asked now and then, thoroughly."""
        return True

    def cut_off(self) -> NoReturn:
        """Ends the process at once. The jobs that its gauge shows as on are held to be the cause."""
        os._exit(1)


class Nobody(Outside):
    """No signals, no parent."""

    def filenos(self) -> Sequence[int]:
        """None."""
        return ()

    def signals(self) -> Sequence[int]:
        """None."""
        return ()

    def parent_lives(self) -> bool:
        """As good as."""
        return True


class Worker:
    """Runs jobs in this process until told to stop: by `stop`, or from outside.

    INT: finish what runs, then end. TERM: give everything back, then end the process at once. USR1: say in the log
    how it stands. Without its parent it finishes what it runs and ends.
    """

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition[Any, Any]],
        settings: Settings | None = None,
        *,
        rules: RulesFor = lambda task, queue: lifecycle.DEFAULT,
        clock: Clock | None = None,
        gauge: Gauge | None = None,
        name: str | None = None,
        outside: Outside | None = None,
        main_thread: bool = True,
        find: Callable[[str], TaskDefinition[Any, Any] | None] = lambda name: None,
    ) -> None:
        """find: asked for a task that is not among these, by the thread that speaks with the store."""
        settings = settings or Settings()
        self.name = name or owner.new_name()
        self._gauge = gauge or NoGauge()
        self.pump = Pump(
            store,
            tasks,
            owner=self.name,
            clock=clock,
            queues=settings.queues,
            shares=settings.shares,
            lease=settings.lease,
            rules=rules,
            gauge=self._gauge,
            keep_output=settings.keep_output,
        )
        self.pump.find, self.pump.most = find, settings.max_jobs or self.pump.most
        self._keep_output = settings.keep_output
        self._outside: Outside = outside or Nobody()
        terms = partial(
            Terms,
            settings.max_body,
            self.pump.ends,
            self._gauge,
            kill_after=settings.kill_after,
            is_open=self._outside.is_open,
            cut_off=self._cut_off,
        )
        self._sync = Threads(settings.threads, self.pump.outcomes, terms, main_thread)
        self._loop = Loop(settings.coroutines, self.pump.outcomes, terms, settings.threads)
        self.pump.attach(self._sync, self._loop)
        self._guard = Guard(self.pump.deadlines, self.pump.break_in)
        self._topic = WORK + ",".join(sorted(settings.queues))
        self._beaten = 0.0
        self._crash: BaseException | None = None
        self._prepare_end(settings.end_within)

    def _prepare_end(self, within: float | None) -> None:
        """within: see `Settings.end_within`."""
        self._orphan = self._gives_back = False
        self._heeding = threading.Lock()
        self._end_within, self._end_by = within, math.inf
        self._end_limit: EndLimit | None = None
        self.awaited: Callable[[], bool] = lambda: True
        """Asked, once it was told to end, whether somebody waits for that: then its store has a limit of time."""

    def run(self) -> None:
        """Works, with the calling thread as one of the slots; returns when stopped."""
        pumping = threading.Thread(target=self._guarded, name="tarry-pump", daemon=True)
        if self._end_within is not None:
            self._end_limit = EndLimit(self, self._outside.filenos(), self._end_within)
        with capture.watched(self._keep_output):
            pumping.start()
            self._sync.serve()
            pumping.join()
        if self._crash is not None:
            raise self._crash

    def stop(self) -> None:
        """Finish what runs, then end. From any thread."""
        self.pump.stop()
        self.pump.bell.poke()
        if self._end_limit is not None:
            self._end_limit.poke()

    def let_go(self) -> None:
        """The worker has ended and its process goes on: nothing ends that any more."""
        if self._end_limit is not None:
            self._end_limit.close()

    # What limits the end

    def heed(self) -> None:
        """Takes note of what came from outside. From any thread."""
        with self._heeding:
            self._heed()
        if self._end_limit is not None and self.is_leaving():
            # What came may have been taken before that thread saw it.
            self._end_limit.poke()

    def is_leaving(self) -> bool:
        """It was told to end."""
        return self.pump.stopping or self._gives_back

    def end_by(self) -> float:
        """By time.monotonic(): when it has to be over, whatever runs."""
        return self._end_by

    def executes(self) -> bool:
        """A job is still run."""
        return self.pump.executes()

    def hurries(self) -> bool:
        """Who told it to end waits for that."""
        return self.awaited()

    def say_waiting(self) -> None:
        """Says that it waits for the store."""
        jobs = self.pump.unsettled()
        if jobs or self.pump.trouble:
            log.warning("waits for the store to settle %s: %s", quantity(len(jobs)), self.pump.trouble or NO_ANSWER)

    def give_up(self) -> None:
        """Ends the process, and names what could not be settled."""
        jobs = self.pump.unsettled()
        if jobs or self.pump.trouble:
            log.error("ends without the store (%s); %s", self.pump.trouble or NO_ANSWER, _again(jobs))
        logging.shutdown()
        os._exit(0)

    def _guarded(self) -> None:
        try:
            self._work()
        except BaseException as error:
            if not self._outside.is_whole():
                self._loop.end_cut_off()
            log.critical("the pump broke; this worker ends", exc_info=True)
            self._crash = error
        finally:
            self._guard.stop()
            self._sync.stop()
            self._loop.stop()
            self.pump.bell.close()

    def _work(self) -> None:
        pump, bell = self.pump, self.pump.bell
        armed, heed_at = False, 0.0
        self._listen()  # before the first claim: the master may have gone while the app was imported
        while True:
            seconds = pump.turn()
            if self._over(seconds):
                return
            self._beat()
            if seconds <= 0:
                if armed:
                    bell.disarm()
                    armed = pump.outcomes.awaited = False
                if (pause := pump.gathering()) > 0:
                    time.sleep(pause)
                if time.monotonic() < heed_at:
                    continue
                bell.clear()
            elif not armed:
                # Armed first, then one more look: what came in between would be slept over.
                bell.arm(self._topic if pump.hungry else FULL)
                armed = pump.outcomes.awaited = True
                pump.look_after_recall()
            elif not pump.outcomes.ended:
                bell.wait(self._nap(seconds), self._outside.filenos())
                armed = pump.outcomes.awaited = False
            heed_at = time.monotonic() + HEED_EVERY
            self._listen()

    def _listen(self) -> None:
        self.heed()
        if self._gives_back:
            self.pump.give_back()
            self._leave()

    def _over(self, seconds: float) -> bool:
        """Nothing is left to do, after a turn that has nothing to do for so many seconds."""
        return self.pump.stopping and not self.pump.holds

    def _nap(self, seconds: float) -> float:
        """How long to sleep where the pump would for so long."""
        return seconds

    def _heed(self) -> None:
        before = self._loop.last()
        if not self._outside.is_whole():
            self._loop.end_cut_off()
        self._loop.forget(before)
        for number in self._outside.signals():
            self._told(number)
        if not self._orphan and not self._outside.parent_lives():
            log.warning("the master is gone; this worker finishes what it runs and ends")
            self._orphan = True
            self.pump.stop()

    def _told(self, number: int) -> None:
        if number == signal.SIGINT:
            self.pump.stop()
        elif number == signal.SIGTERM:
            self._gives_back = True
            self._end_by = time.monotonic() + (self._end_within or 0.0)
        elif number == signal.SIGUSR1:
            self._report()

    def _cut_off(self) -> NoReturn:
        log.critical("a job closed this worker's descriptors, so it ends at once; those that are on count a death")
        self._outside.cut_off()

    def _leave(self) -> None:
        """The jobs are others' by now, so not another line of them may run here."""
        log.info("gave its jobs back and ends")
        logging.shutdown()
        os._exit(0)

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._beaten >= BEAT_EVERY:
            self._beaten = now
            self._gauge.beat(memory())

    def _report(self) -> None:
        events = self.pump.events
        log.info("processed %d, failed %d, holds %d", events.processed, events.failed, self.pump.holds)


def _again(jobs: Sequence[Job]) -> str:
    if not jobs:
        return "nothing is left to settle"
    named = ", ".join(f"{job.task} {ids.text(job.id)}" for job in jobs[:NAMED])
    more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
    return f"what became of {quantity(len(jobs))} is not stored; to be run again: {named}{more}"


def memory() -> int:
    """Resident bytes of this process; 0 where /proc does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
