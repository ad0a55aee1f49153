"""A worker: the pump's thread, the slots, the event loop, and what signals say to them."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

from tarry.engine import capture, owner
from tarry.engine.client import MAX_BODY
from tarry.engine.clock import Clock
from tarry.engine.deadlines import Guard
from tarry.engine.gauge import Gauge, NoGauge
from tarry.engine.pump import Pump, RulesFor
from tarry.engine.runner.loop import Loop
from tarry.engine.runner.threads import Threads
from tarry.engine.shares import BY_DEFAULT, BandShares
from tarry.engine.task import Task
from tarry.engine.terms import KILL_AFTER, Terms
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.store.base import Store
from tarry.store.bell import FULL, WORK

log = logging.getLogger("tarry.worker")

BEAT_EVERY = 1.0
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


class Outside(Protocol):
    """Who may speak to a worker while it works: signals, and a parent process."""

    def filenos(self) -> Sequence[int]:
        """What becomes readable when there is news."""

    def signals(self) -> Sequence[int]:
        """The signals that came since the last call; does not wait."""

    def parent_lives(self) -> bool:
        """False once the process that looks after this one is gone."""


class Nobody:
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
        tasks: Mapping[str, Task[Any, Any]],
        settings: Settings | None = None,
        *,
        rules: RulesFor = lambda task, queue: lifecycle.DEFAULT,
        clock: Clock | None = None,
        gauge: Gauge | None = None,
        name: str | None = None,
        outside: Outside | None = None,
        main_thread: bool = True,
        find: Callable[[str], Task[Any, Any] | None] = lambda name: None,
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
        self.pump.find = find
        self._keep_output = settings.keep_output
        terms = partial(Terms, settings.max_body, self.pump.ends, self._gauge, kill_after=settings.kill_after)
        self._sync = Threads(settings.threads, self.pump.outcomes, terms, main_thread)
        self._loop = Loop(settings.coroutines, self.pump.outcomes, terms, settings.threads)
        self.pump.attach(self._sync, self._loop)
        self._guard = Guard(self.pump.deadlines, self.pump.break_in)
        self._topic = WORK + ",".join(sorted(settings.queues))
        self._outside: Outside = outside or Nobody()
        self._orphan = False
        self._beaten = 0.0
        self._crash: BaseException | None = None

    def run(self) -> None:
        """Works, with the calling thread as one of the slots; returns when stopped."""
        pumping = threading.Thread(target=self._guarded, name="tarry-pump", daemon=True)
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

    def _guarded(self) -> None:
        try:
            self._work()
        except BaseException as error:
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
        self._heed()  # before the first claim: the master may have gone while the app was imported
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
            self._heed()

    def _over(self, seconds: float) -> bool:
        """Nothing is left to do, after a turn that has nothing to do for so many seconds."""
        return self.pump.stopping and not self.pump.holds

    def _nap(self, seconds: float) -> float:
        """How long to sleep where the pump would for so long."""
        return seconds

    def _heed(self) -> None:
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
            self.pump.give_back()
            self._leave()
        elif number == signal.SIGUSR1:
            self._report()

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


def memory() -> int:
    """Resident bytes of this process; 0 where /proc does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
