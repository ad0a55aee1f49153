"""Ends the attempts of a worker that is cut off from its store before their lease is over, so that no second attempt
runs beside one of them."""

import logging
import threading
from collections.abc import Mapping

from tarry.client.clock import elapsed
from tarry.model.duration import SECOND
from tarry.model.killing import LEASE_LOST
from tarry.model.outcome import Released
from tarry.model.quantity import quantity
from tarry.store.shared.backoff import TurnGuard
from tarry.tasks.interrupts import CalledBack
from tarry.tasks.running import Batch, Running
from tarry.worker.held_leases import AttemptLeases
from tarry.worker.run.runner import Runner

log = logging.getLogger("tarry.worker")

MARGIN = 1.0
"""Seconds before the end of the lease by which an attempt is killed: clocks differ, and a master may be late."""
LOOK_EVERY = 0.2


class LeaseFence:
    """A thread of its own, since a call of the store may hang. after: seconds from the last extension of the leases
    until the attempts are interrupted; inf: never. runners: by whether their tasks are async."""

    def __init__(
        self, leases: AttemptLeases, held: Mapping[bytes, Running], runners: Mapping[bool, Runner], after: float
    ) -> None:
        self._leases, self._held, self._runners = leases, held, runners
        self._after, self._has_stopped = after, threading.Event()
        if after < threading.TIMEOUT_MAX:
            threading.Thread(target=self._watch, name="tarry-fence", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread."""
        self._has_stopped.set()

    def _watch(self) -> None:
        guard = TurnGuard(log, "ending attempts before their lease ends", self._has_stopped.wait)
        # By a clock that runs while the machine sleeps: a wait of the whole time would take too long after that.
        while not self._has_stopped.wait(LOOK_EVERY):
            with guard:
                if self._held and elapsed() - self._leases.extended_at >= self._after * SECOND:
                    self._end_attempts()

    def _end_attempts(self) -> None:
        fresh = [running for running in list(self._held.values()) if running.interrupt is None]
        for runner in self._runners.values():
            for waiting in runner.withdraw():
                runner.outcomes.add(waiting, Released(), True)
        errors = [error for running in fresh if (error := self._interrupt(running)) is not None]
        if any(running.started for running in fresh):
            log.error(
                "cut off from the store until the lease ends: %s interrupted, to be run again", quantity(len(fresh))
            )
        if errors:
            raise errors[0]

    def _interrupt(self, running: Running) -> Exception | None:
        """Interrupts the attempt; returns why it could not."""
        call = running.handle if isinstance(running.handle, Batch) else running
        call.kill_reason = LEASE_LOST
        try:
            self._runners[call.task.is_async].interrupt(call, CalledBack)
        except Exception as error:
            # The others have the same lease.
            return error
        return None
