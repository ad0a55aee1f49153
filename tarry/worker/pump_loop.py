"""The thread of the pump: when it makes the next step, and how it sleeps between two."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from tarry.store.rules.sleeper import FULL
from tarry.worker.pump import Pump

READ_NEWS_EVERY = 0.05
"""Seconds between two reads of signals while busy."""
SOON = 0.001
"""Seconds to wait for the end of a job that has just begun, before the pump listens for wake-ups; and for the next step
of a job whose last one was stored just now, before the pump sleeps."""


class PumpedWorker(Protocol):
    """What the loop asks of its worker."""

    def obey(self) -> None:
        """Handles signals and the loss of the parent."""

    def beat(self) -> None:
        """Shows that it is alive."""

    def is_finished(self, seconds: float) -> bool:
        """Whether the loop ends. seconds: as `Pump.step` returned."""

    def sleep_seconds(self, seconds: float) -> float:
        """How long to sleep if the pump would sleep for so long."""


class PumpLoop:
    """Turns a pump until its worker is finished.

    topic: what it listens for while there are free slots. filenos: the descriptors on which signals come.
    """

    def __init__(self, worker: PumpedWorker, pump: Pump, topic: str, filenos: Callable[[], Sequence[int]]) -> None:
        self._worker, self._pump, self._topic, self._filenos = worker, pump, topic, filenos
        self._wakeup = pump.wakeup
        self._heard = ""
        """What it listens for; empty: nothing."""
        self._read_at = 0.0
        """time.monotonic() from which on a busy pump reads signals."""

    def run(self) -> None:
        """Returns when the worker is finished."""
        pump, worker = self._pump, self._worker
        self._obey()  # before the first claim: the master may have gone while the app was imported
        while True:
            seconds = pump.step()
            if worker.is_finished(seconds):
                return
            worker.beat()
            pause = pump.settle_delay()
            if pause > 0 or pump.is_urgent:
                self._go_on(pause)
            elif seconds > 0 and self._heard:
                self._sleep(seconds)
            else:
                self._listen()

    def _go_on(self, pause: float) -> None:
        if self._heard:
            # While busy, wake-ups would only cost system calls: the next step asks the store anyway.
            self._wakeup.ignore()
            self._heard = ""
        if pause > 0 and not self._pump.gather_ends(pause):
            time.sleep(pause)
        # Not at each step: reading is a system call, and each one lets another thread have the interpreter.
        if time.monotonic() >= self._read_at:
            self._wakeup.clear()
            self._obey()

    def _listen(self) -> None:
        """Listens for wake-ups. Another step must follow: else jobs that came before would have to wait."""
        pump = self._pump
        if pump.has_started:
            # Most jobs are short: then that step settles this one, too, and it is the only one.
            pump.outcomes.expect(SOON)
            pump.collect()
        topic = self._wanted_topic()
        if self._heard != topic or not self._wakeup.is_listening():
            self._heard = topic
            self._wakeup.listen(topic)
        pump.look_thoroughly()

    def _sleep(self, seconds: float) -> None:
        was_stopping = self._pump.stopping
        # Not after the sleep: then it would delay a job.
        self._obey()
        if self._heard != self._wanted_topic():
            self._listen()
        elif self._pump.stopping == was_stopping:
            self._sleep_until_woken(seconds)

    def _sleep_until_woken(self, seconds: float) -> None:
        outcomes, steps = self._pump.outcomes, self._pump.steps
        # The task that waited for it often has the next one soon. Progress that comes meanwhile wakes no sleep.
        if steps.just_saved and (outcomes.expect(SOON, lambda: steps.pending) or steps.pending):
            return
        outcomes.awaited = True
        if not outcomes.ended:
            self._pump.sleep(self._worker.sleep_seconds(seconds), self._filenos())
        outcomes.awaited = False
        if not self._wakeup.is_listening():
            self._heard = ""

    def _wanted_topic(self) -> str:
        return self._topic if self._pump.has_free_slots else FULL

    def _obey(self) -> None:
        self._worker.obey()
        self._read_at = time.monotonic() + READ_NEWS_EVERY
