"""A worker: starts the pump's thread, the threads and the event loop for jobs, and obeys signals."""

# For its hooks of forks: where the first job that needs it imports it while another job forks, it would release a lock
# that is not held.
import concurrent.futures.thread  # noqa: F401
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol

from msgspec import Struct, field

from tarry.client.client import MAX_BODY
from tarry.client.clock import Clock
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.quantity import quantity
from tarry.platform import resident_bytes
from tarry.store.rules import owner
from tarry.store.rules.base import Store
from tarry.store.rules.sleeper import WORK
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.running import Running
from tarry.worker import capture
from tarry.worker.attempt_requests import AttemptRequests
from tarry.worker.claim_plan import DEFAULT_SHARES, BandShares
from tarry.worker.deadlines import DeadlineThread
from tarry.worker.exchanger import RulesFor
from tarry.worker.lease_fence import MARGIN, LeaseFence
from tarry.worker.pump import Pump
from tarry.worker.pump_loop import PumpLoop
from tarry.worker.run.context import KILL_AFTER, AttemptContext
from tarry.worker.run.loop import LoopRunner
from tarry.worker.run.status_reporter import NullReporter, StatusReporter
from tarry.worker.run.threads import ThreadRunner
from tarry.worker.shutdown import ShutdownLimit, describe_unsettled

log = logging.getLogger("tarry.worker")

BEAT_EVERY = 1.0
UNASKED_WAIT = 0.5
"""Seconds after a TERM in which a master that got one at the same time can say that it is ending."""
NO_ANSWER = "it has not answered yet"


class WorkerSettings(Struct, frozen=True):
    """What the workers of a pool have in common. lease in microseconds."""

    queues: Mapping[str, int] = field(default_factory=lambda: {"*": 1})
    """With their weights; 0: looked into once a second, as for broadcasts."""
    threads: int = 1
    coroutines: int = 100
    shares: BandShares = DEFAULT_SHARES
    lease: int = 15 * SECOND
    max_body: int = MAX_BODY
    kill_after: float = KILL_AFTER
    """Seconds."""
    keep_output: int = 0
    """Bytes to keep of what each job prints and logs; 0: none."""
    end_within: float | None = None
    """How many seconds a worker that stops waits for its store after its last job; then its process ends. None: as long
    as it takes."""
    max_jobs: int = 0
    """After so many jobs it claims no more, and its master replaces it. 0: no limit."""
    uvloop: bool = False
    """Coroutines run on uvloop's event loop."""
    fence: bool = False
    """A worker that is cut off from its store ends its attempts before their lease does."""


class ControlChannel(Protocol):
    """How signals and a parent process control a worker."""

    def filenos(self) -> Sequence[int]:
        """Descriptors that become readable when there is news."""

    def signals(self) -> Sequence[int]:
        """The signals since the last call; does not wait."""

    def is_parent_alive(self) -> bool:
        """Whether the process that started this one is still there."""

    def is_asked(self) -> bool:
        """Whether the parent wants the worker to finish its jobs and end, as after INT; known as `requests` are."""
        return False

    def confirm_stop(self) -> None:
        """Tells the parent, if it has asked, that the worker starts no more jobs. Called again and again."""
        return

    def is_term_wanted(self) -> bool:
        """Whether TERM may come from somebody who ends this worker. False: perhaps one of its own jobs has sent it."""
        return True

    def exit_unasked(self) -> NoReturn:
        """Ends the process at once after a TERM that was not wanted; the jobs that are shown as running count it."""
        os._exit(1)

    def requests(self) -> Sequence[Mapping[str, Any]]:
        """What the parent has asked for until the last call of `is_parent_alive`, each once: see `AttemptRequests`."""
        return ()

    def reply(self, answer: Mapping[str, Any]) -> None:
        """Answers such a request; does not wait."""
        return

    def is_open(self) -> bool:
        """False once a job has closed these descriptors. Called after each job, in any thread: must be quick."""
        return True

    def is_intact(self) -> bool:
        """The same, checked thoroughly; called now and then."""
        return True

    def exit_process(self) -> NoReturn:
        """Ends the process at once; the jobs that are shown as running count as the cause."""
        os._exit(1)


class NoControl(ControlChannel):
    """No signals, no parent."""

    def filenos(self) -> Sequence[int]:
        """There are none."""
        return ()

    def signals(self) -> Sequence[int]:
        """There are none."""
        return ()

    def is_parent_alive(self) -> bool:
        """Always true: there is no parent."""
        return True


class Worker:
    """Runs jobs in this process until told to stop: by `stop`, or from outside.

    INT: finish the running jobs, then end. TERM: give all jobs back, then end the process at once; if its parent does
    not want the end, the running jobs count it, since one of them may have sent the signal. USR1: log the counts. If
    its parent is gone, it finishes the running jobs and ends.
    """

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition[Any, Any]],
        settings: WorkerSettings | None = None,
        *,
        rules: RulesFor = lambda task, queue: lifecycle.DEFAULT,
        clock: Clock | None = None,
        reporter: StatusReporter | None = None,
        name: str | None = None,
        control: ControlChannel | None = None,
        main_thread: bool = True,
        find_task: Callable[[str], TaskDefinition[Any, Any] | None] = lambda name: None,
    ) -> None:
        """find_task: called for a task that is not in `tasks`, by the thread that uses the store."""
        settings = settings or WorkerSettings()
        self.name = name or owner.new_name()
        self._reporter = reporter or NullReporter()
        self._control: ControlChannel = control or NoControl()
        self._keep_output = settings.keep_output
        self.pump = Pump(
            store,
            tasks,
            owner=self.name,
            clock=clock,
            queues=settings.queues,
            shares=settings.shares,
            lease=settings.lease,
            rules=rules,
            reporter=self._reporter,
            keep_output=settings.keep_output,
        )
        self.pump.find_task, self.pump.max_jobs = find_task, settings.max_jobs or self.pump.max_jobs
        self._attach_runners(store, settings, main_thread)
        self._deadline_thread = DeadlineThread(self.pump.deadlines, self.pump.interrupt_overdue)
        # Its own queues left out: one worker of each kind is woken, and with them each would be of a kind of its own.
        topic = WORK + ",".join(sorted(queue for queue, weight in settings.queues.items() if weight))
        self._pump_loop = PumpLoop(self, self.pump, topic, self._control.filenos)
        self._crash: BaseException | None = None
        self._init_shutdown(settings.end_within)

    def _attach_runners(self, store: Store, settings: WorkerSettings, main_thread: bool) -> None:
        context_at = partial(
            AttemptContext,
            store.most_apart or settings.max_body,
            self.pump.is_final,
            self._reporter,
            kill_after=settings.kill_after,
            is_open=self._control.is_open,
            exit_process=self._exit_cut_off,
            store=store,
        )
        outcomes = self.pump.outcomes
        self._threads = ThreadRunner(settings.threads, outcomes, context_at, main_thread)
        # The threads have the cells before this one.
        self._loop = LoopRunner(settings.coroutines, outcomes, context_at, settings.threads, settings.uvloop)
        self.pump.attach(self._threads, self._loop)
        self._requests = AttemptRequests(self.pump, self._loop)
        # An extension promises half a lease.
        after = settings.lease / 2 / SECOND - settings.kill_after - MARGIN if settings.fence else math.inf
        self._fence = LeaseFence(self.pump.leases, self.pump.held, {False: self._threads, True: self._loop}, after)

    def _init_shutdown(self, within: float | None) -> None:
        """within: `WorkerSettings.end_within`."""
        self._beat_at = 0.0
        self._is_orphan = self._is_quitting = False
        self._unasked_until = math.inf
        """After an unwanted TERM: time.monotonic() until which its parent may still want the end."""
        self._suspect: Running | None = None  # the async job that ran the last step before it
        self._heeding = threading.Lock()
        self._end_within, self._end_by = within, math.inf
        self._shutdown_limit: ShutdownLimit | None = None
        self.is_awaited: Callable[[], bool] = lambda: True
        """Whether a person or process waits for this worker to end. Its wait for the store is limited only then."""

    def run(self) -> None:
        """Runs jobs until stopped; the calling thread is one of the slots."""
        pumping = threading.Thread(target=self._run_pump, name="tarry-pump", daemon=True)
        if self._end_within is not None:
            self._shutdown_limit = ShutdownLimit(self, self._control.filenos(), self._end_within)
        with capture.capture_output(self._keep_output):
            pumping.start()
            self._threads.serve()
            pumping.join()
        if self._crash is not None:
            raise self._crash

    def stop(self) -> None:
        """Finishes the running jobs, then ends. Thread-safe."""
        self.pump.stop()
        self.pump.wakeup.wake()
        if self._shutdown_limit is not None:
            self._shutdown_limit.notify()

    def disarm(self) -> None:
        """Called when the worker has ended and its process goes on: nothing ends the process any more."""
        if self._shutdown_limit is not None:
            self._shutdown_limit.close()

    # For `ShutdownLimit`

    def read_news(self) -> None:
        """Handles signals and the loss of the parent. Thread-safe."""
        # The pump's thread and that of `ShutdownLimit` both read news, so one at a time handles it.
        with self._heeding:
            self._read_news()
        if self._shutdown_limit is not None and self.is_stopping():
            # That thread waits for the same news, and may not see what was read here.
            self._shutdown_limit.notify()

    def is_stopping(self) -> bool:
        """It was told to end."""
        return self.pump.stopping or self._is_quitting

    def end_by(self) -> float:
        """time.monotonic() by which it has to end, even if jobs run."""
        return self._end_by

    def is_executing(self) -> bool:
        """A job still runs."""
        return self.pump.is_executing()

    def is_urgent(self) -> bool:
        """Somebody waits for its end."""
        return self.is_awaited()

    def log_waiting(self) -> None:
        """Logs that it waits for the store."""
        jobs = self.pump.unsettled_jobs()
        if jobs or self.pump.trouble:
            log.warning("waits for the store to settle %s: %s", quantity(len(jobs)), self.pump.trouble or NO_ANSWER)

    def give_up(self) -> None:
        """Ends the process, and logs which jobs could not be settled."""
        jobs = self.pump.unsettled_jobs()
        if jobs or self.pump.trouble:
            log.error("ends without the store (%s); %s", self.pump.trouble or NO_ANSWER, describe_unsettled(jobs))
        # `os._exit` flushes no log handler.
        logging.shutdown()
        os._exit(0)

    def _run_pump(self) -> None:
        try:
            self._pump_loop.run()
        except BaseException as error:
            # A job that closed the worker's descriptors breaks the pump, too; then the job is to blame.
            if not self._control.is_intact():
                self._loop.exit_cut_off()
            log.critical("the pump broke; this worker ends", exc_info=True)
            self._crash = error
        finally:
            self._deadline_thread.stop()
            self._fence.stop()
            self._threads.stop()
            self._loop.stop()
            self.pump.wakeup.close()

    # For `PumpLoop`

    def obey(self) -> None:
        """Handles signals; ends the process if one says so."""
        self.read_news()
        if self._unasked_until < math.inf and not self._is_quitting:
            with self._heeding:
                self._end_unasked()
        if self._is_quitting:
            self.pump.release_all()
            self._exit_process()

    def beat(self) -> None:
        """Shows that it is alive, once a second."""
        now = time.monotonic()
        if self.pump.is_closed:
            self._control.confirm_stop()
        if now - self._beat_at >= BEAT_EVERY:
            self._beat_at = now
            self._reporter.beat(resident_bytes())
            self._loop.check_responsive(now)

    def is_finished(self, seconds: float) -> bool:
        """Whether the loop ends. seconds: as `Pump.step` returned."""
        return self.pump.stopping and not self.pump.held_count

    def sleep_seconds(self, seconds: float) -> float:
        """How long to sleep if the pump would sleep for so long."""
        return min(seconds, max(0.0, self._unasked_until - time.monotonic()))

    def _read_news(self) -> None:
        # Noted before the check: a job that runs a step after it is not cleared by it.
        before = self._loop.last_running()
        if not self._control.is_intact():
            self._loop.exit_cut_off()
        self._loop.clear_last(before)
        if self._unasked_until == math.inf:
            self._suspect = self._loop.now_running() or before
        for number in self._control.signals():
            self._handle_signal(number)
        if not self._is_orphan and not self._control.is_parent_alive():
            self._is_orphan = True
            self.pump.stop()
            # After it: who reads this may rely on it.
            log.warning("the master is gone; this worker finishes what it runs and ends")
        if self._control.is_asked() and not self.pump.stopping:
            self.pump.stop()
        for request in self._control.requests():
            if (answer := self._requests.answer(request)) is not None:
                self._control.reply(answer)

    def _handle_signal(self, number: int) -> None:
        if number == signal.SIGINT:
            self.pump.stop()
        elif number == signal.SIGTERM:
            self._is_quitting = self._is_quitting or self._control.is_term_wanted()
            if not self._is_quitting and self._unasked_until == math.inf:
                self.pump.stop()
                self._unasked_until = time.monotonic() + UNASKED_WAIT
            self._end_by = time.monotonic() + (self._end_within or 0.0)
        elif number == signal.SIGUSR1:
            self._log_status()

    def _exit_cut_off(self) -> NoReturn:
        # Also where a sync job that ended found it: it may have run on beside the async job that did it.
        self._loop.show_last()
        log.critical("a job closed this worker's descriptors, so it ends at once; those that are on count a death")
        self._control.exit_process()

    def _end_unasked(self) -> None:
        if self._control.is_term_wanted():
            self._is_quitting = True
        elif time.monotonic() >= self._unasked_until:
            log.error(
                "got TERM, and its master wants no end: perhaps a job has sent it; those that are on count a death"
            )
            logging.shutdown()
            # What has ended was settled by the step before. The keeper brings back the rest.
            self._loop.show_suspect(self._suspect, self.pump.held)
            self._control.exit_unasked()

    def _exit_process(self) -> None:
        log.info("gave its jobs back and ends")
        # Others may have the jobs by now, so not one more line of their code may run here.
        logging.shutdown()
        os._exit(0)

    def _log_status(self) -> None:
        events = self.pump.events
        log.info("processed %d, failed attempts %d, holds %d", events.processed, events.failed, self.pump.held_count)
