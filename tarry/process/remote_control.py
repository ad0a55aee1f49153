"""What the keeper does with requests that come through the store: it has its master carry them out, by the same means
as the commands of this host."""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tarry.client.clock import Clock
from tarry.config.config import Config
from tarry.errors import MasterError, StoreError
from tarry.keeper.chores import Keeper
from tarry.keeper.host_requests import HostAct, HostRequest, HostRequests, RequestState, sweep
from tarry.model.job import State
from tarry.model.killing import ENDED
from tarry.process.parent_board import ParentBoard
from tarry.runtime import control
from tarry.runtime.board.layout import QUITTING, STOPPING
from tarry.runtime.board.reader import Board, ChildStatus
from tarry.runtime.pidfile import holder
from tarry.store.queries.hosts import list_hosts
from tarry.store.rules import ids, owner
from tarry.store.rules.base import Store
from tarry.terminal import escape_control

log = logging.getLogger("tarry.keeper")

_LOOK_EVERY, _LOOK_SELDOM, _SWEEP_EVERY = 1.0, 2.0, 60.0
STACK_TIMEOUT = 5.0
"""Seconds after which no stack is awaited any more."""
MOST_OUTCOMES = 32
"""Outcomes that wait for a store that is away."""
MAX_LOGGED = 300
"""Characters of an outcome in the log."""
# A coroutine is shown on the scoreboard only for as long as one of its steps takes.
SURELY_RUNS = 1.0
"""Seconds for which the board shows a job before its process is killed for it."""

RequestOutcome = tuple[RequestState, str]
"""How a request ended, with its outcome in words."""


class RemoteControl:
    """Belongs to the keeper's process, a child of the master. send: to the master."""

    def __init__(self, store: Store, config: Config, send: Callable[[dict[str, Any]], object], clock: Clock) -> None:
        self._store, self._send, self._settings = store, send, config.master
        self._master = ParentBoard(config)
        self._clock = clock
        self._requests = HostRequests(store, f"{owner.process_owner(self._master.pid)}:0")
        self._stacks: dict[str, tuple[HostRequest, float]] = {}
        """Requests whose stack the master is to send, with the moment until which it is awaited."""
        self._kills: list[HostRequest] = []
        """Requests to end an attempt that is to be looked for once more."""
        self._outcomes: deque[tuple[HostRequest, RequestState, str]] = deque(maxlen=MOST_OUTCOMES)
        """Those that are not stored yet."""
        self._storing = threading.Lock()

    def register_chores(self, keeper: Keeper) -> None:
        """Makes it a chore of the keeper to look for requests; and to remove old ones, of any host."""
        if self._settings.remote_control:
            keeper.register_chore(_LOOK_EVERY, self.look, _LOOK_SELDOM)
        keeper.register_chore(_SWEEP_EVERY, self.sweep)

    def sweep(self) -> None:
        """Removes requests that were kept for long enough. StoreError."""
        now = self._clock.now()
        sweep(self._store, list_hosts(self._store, now), now)

    def look(self) -> bool:
        """Takes the requests that wait, and goes on with those that are under way. False: there are none.
        StoreError."""
        self._store_outcomes()
        found = self._requests.under_way()
        if not (found or self._stacks or self._kills) or (board := self._master.read()) is None:
            return False
        self._go_on(found, board)
        if any(one.state is RequestState.WAITING for one in found):
            # The mark is read before the request is carried out: only a reload with a higher number serves it.
            for request in self._requests.take(self._clock.now(), board.notice.asked):
                log.warning("%s: %s", _asker(request), describe(request))
                self._begin(request, board)
        return True

    def handle(self, message: Mapping[str, Any]) -> bool:
        """Handles the master's message if it is about stacks; else False."""
        if "stack" not in message:
            return False
        if (awaited := self._stacks.pop(str(message["stack"]), None)) is not None:
            self._end(awaited[0], _stack_of(awaited[0], message))
        return True

    def _begin(self, request: HostRequest, board: Board) -> None:
        try:
            ending = self._carry_out(request, board)
        except MasterError as error:
            ending = RequestState.FAILED, str(error)
        if ending is not None:
            self._end(request, ending)

    def _carry_out(self, request: HostRequest, board: Board) -> RequestOutcome | None:
        """Returns how it ended; None: it goes on. MasterError."""
        if request.act not in (HostAct.STACK, HostAct.KILL):
            self._check_master(board)
        match request.act:
            case HostAct.RELOAD:
                control.request_reload(self._settings.pid_file, request.by)
            case HostAct.SCALE:
                # It waits for the master, and chores must not.
                threading.Thread(target=self._scale, args=(request,), name="tarry-scale", daemon=True).start()
            case HostAct.STOP:
                control.request_stop(self._settings.pid_file)
                return RequestState.DONE, "the master stops; its workers finish what they run"
            case HostAct.STACK:
                return self._ask_for_stack(request, board)
            case HostAct.KILL:
                self._kills.append(request)
        return None

    def _check_master(self, board: Board) -> None:
        if board.state in (STOPPING, QUITTING):
            raise MasterError(f"the master is {board.state}")
        if holder(self._settings.pid_file) != self._master.pid:
            raise MasterError("the master is being replaced by another")

    def _go_on(self, found: list[HostRequest], board: Board) -> None:
        for request in found:
            if request.state is RequestState.TAKEN and request.act is HostAct.RELOAD:
                # Perhaps taken by an earlier keeper: a reload replaces the keeper, too.
                self._check_reload(request, board)
        waiting, self._kills = self._kills, []
        for request in waiting:
            self._end(request, self._kill(request, board))
        now = time.monotonic()
        for id, (request, until) in list(self._stacks.items()):
            if now >= until:
                del self._stacks[id]
                self._end(request, (RequestState.FAILED, "the worker did not answer in time"))

    def _check_reload(self, request: HostRequest, board: Board) -> None:
        if board.notice.done > request.mark:
            try:
                generation = control.reload_result(board)
                self._end(request, (RequestState.DONE, f"reloaded: generation {generation} serves"))
            except MasterError as error:
                self._end(request, (RequestState.FAILED, str(error)))
        elif board.state in (STOPPING, QUITTING):
            self._end(request, (RequestState.FAILED, f"the master is {board.state}: nothing is reloaded any more"))

    def _scale(self, request: HostRequest) -> None:
        try:
            control.scale(self._settings.pid_file, request.pool, request.workers)
            ending = RequestState.DONE, f"{request.pool}: {request.workers} wanted"
        except (MasterError, OSError) as error:
            ending = RequestState.FAILED, str(error)
        self._end(request, ending)

    def _ask_for_stack(self, request: HostRequest, board: Board) -> RequestOutcome | None:
        worker = _find_worker(board, request.owner)
        if worker is None:
            return RequestState.FAILED, "this worker does not run any more"
        self._stacks[request.id] = request, time.monotonic() + STACK_TIMEOUT
        self._send({"to": worker.pid, "stack": request.id})
        return None

    def _kill(self, request: HostRequest, board: Board) -> RequestOutcome:
        """Called once the attempt had the time to be seen on the board."""
        worker = _find_worker(board, request.owner)
        if worker is None:
            return self._over(request, "this worker does not run any more")
        job, now = ids.parse(request.job), time.monotonic()
        shown = next((one for one in worker.running if (ids.parse(one.id), one.epoch) == (job, request.epoch)), None)
        if shown is None or shown.seconds < SURELY_RUNS:
            self._send({"to": worker.pid, "end": job.hex(), "epoch": request.epoch})
            return RequestState.DONE, "the worker was told to end it"
        if self._master.set_kill_time(request.owner, job, request.epoch, now, ENDED):
            return (
                RequestState.DONE,
                "its worker is killed and replaced; other jobs of that worker run again, uncounted",
            )
        return self._over(request, "this attempt has just ended")

    def _over(self, request: HostRequest, text: str) -> RequestOutcome:
        """Of an attempt that cannot be ended any more. One whose job was cancelled, too, has ended as it was wanted: by
        the cancel, which may have been quicker."""
        # The request may have been written by anybody: then its id may be none.
        with contextlib.suppress(StoreError, ValueError):
            (job,) = self._store.get([ids.parse(request.job)])
            if job is not None and (job.state, job.epoch) == (State.CANCELLED, request.epoch):
                return RequestState.DONE, "the job was cancelled, and its attempt is over"
        return RequestState.FAILED, text

    def _end(self, request: HostRequest, ending: RequestOutcome) -> None:
        """Stores the outcome, now or once the store is back. Thread-safe."""
        log.info("%s: %s: %s", describe(request), ending[0], escape_control(ending[1][-MAX_LOGGED:]).replace("\n", " "))
        with self._storing:
            self._outcomes.append((request, *ending))
        with contextlib.suppress(StoreError):
            self._store_outcomes()

    def _store_outcomes(self) -> None:
        with self._storing:
            while self._outcomes:
                self._requests.end(*self._outcomes[0], self._clock.now())
                self._outcomes.popleft()


def describe(request: HostRequest) -> str:
    """What is asked for: `scale mail to 3`."""
    match request.act:
        case HostAct.SCALE:
            text = f"scale {request.pool} to {request.workers}"
        case HostAct.STACK | HostAct.KILL:
            text = f"{request.act} {request.job or request.owner}"
        case _:
            text = str(request.act)
    # Whoever can write to the store may have written it.
    return escape_control(text)


def _asker(request: HostRequest) -> str:
    return f"asked through the store by {escape_control(request.by) or 'somebody'}"


def _find_worker(board: Board, name: str) -> ChildStatus | None:
    return next((child for child in board.children if name and child.owner == name and child.pid), None)


def _stack_of(request: HostRequest, message: Mapping[str, Any]) -> RequestOutcome:
    """The stack of the job that is meant, else those of the whole worker."""
    jobs, threads = message.get("jobs"), str(message.get("threads", ""))
    stacks = {str(job): str(text) for job, text in jobs.items()} if isinstance(jobs, dict) else {}
    if request.job:
        stack = stacks.get(ids.parse(request.job).hex(), "")
        return (RequestState.DONE, stack) if stack else (RequestState.FAILED, _NO_STACK)
    parts = [f"{ids.text(bytes.fromhex(job))}\n{text}" for job, text in stacks.items()]
    text = "\n\n".join([*parts, threads]).strip()
    return (RequestState.DONE, text) if text else (RequestState.FAILED, "the worker wrote nothing: it may be stopped")


_NO_STACK = "none of its code runs at this moment: it waits for a place, or has just ended"
