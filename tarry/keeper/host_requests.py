"""What a master is asked to do from afar: requests and their outcomes are kept in cells of the store.

A request names one master by its instance, which is never used again: a master that was restarted finds no request that
was made to the one before. It is taken at most once, and not at all if it is older than `TAKEN_WITHIN`.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.errors import StoreAway, TooManyRequests
from tarry.model.checks.decoders import decode_json
from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.model.job import Job, StoredCount, StoredTime
from tarry.store.queries.hosts import Host
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.rules.cell import Value, change_cell
from tarry.store.rules.partial_result import reachable_part

OPEN, ENDED = "host-request:", "host-outcome:"
"""The names of the two cells of each master begin with these. Its keeper reads the first, a small one, each second or
two."""
TAKEN_WITHIN = 30 * SECOND
ENDED_WITHIN = 15 * MINUTE
"""A request that was taken and has no outcome after this time is shown as one without an answer."""
KEPT = HOUR
MOST_OPEN, MOST_OF_CALLER = 8, 4
MOST_ENDED = 12
MAX_TEXT = 16_000
"""Characters of an outcome."""
MOST_NAME = 200
"""Characters of the name of who asks."""
MOST_SCALED = 1000
"""How many workers a pool can be asked to have."""
_MAX_CELL = 2**20
"""Bytes of a cell: a larger one is not ours."""


class HostAct(StrEnum):
    """What a master can be asked for."""

    RELOAD = "reload"
    SCALE = "scale"
    STOP = "stop"
    STACK = "stack"
    KILL = "kill"


class RequestState(StrEnum):
    """How far a request is."""

    WAITING = "waiting"
    TAKEN = "taken"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    """Nobody took it in time: nothing was done, and nothing will be."""
    LOST = "lost"
    """It was taken, and no outcome followed: it may have been done."""


class HostRequest(Struct, frozen=True):
    """One request. Times are microseconds since the epoch, by the store's clock."""

    id: Annotated[str, Meta(max_length=64)]
    act: HostAct
    at: StoredTime
    by: Annotated[str, Meta(max_length=MOST_NAME)] = ""
    """Who asks: the name of a token, or of a user of a command."""
    pool: Annotated[str, Meta(max_length=200)] = ""
    workers: StoredCount = 0
    owner: Annotated[str, Meta(max_length=200)] = ""
    """The worker that is meant, as the owner of jobs."""
    job: Annotated[str, Meta(max_length=64)] = ""
    epoch: StoredCount = 0
    """The attempt at the job that is meant."""
    state: RequestState = RequestState.WAITING
    taken: StoredTime = 0
    mark: StoredCount = 0
    """Of a reload: how many the master had been asked for before."""
    ended: StoredTime = 0
    text: Annotated[str, Meta(max_length=MAX_TEXT)] = ""
    """The outcome in words, or the stack."""


class HostRequests:
    """The requests to one master."""

    def __init__(self, store: Store, instance: str) -> None:
        self._store, self._instance = store, instance

    def put(self, request: HostRequest) -> None:
        """Adds a request. TooManyRequests; StoreError: it may be stored all the same."""

        def add(cell: Value) -> Value:
            found = [one for one in _decode(cell) if request.at - one.at < KEPT]
            live = _live(found, request.at, request.by)
            # Those that nobody took are shown for a while.
            over = [one for one in found if one not in live]
            return _encode([*over[-MOST_ENDED:], *live, request])

        change_cell(self._store, OPEN + self._instance, add)

    def cancel_first(self, cancel: Callable[[], object], now: int, by: str = "") -> None:
        """Cancels the job whose attempt a request is to end: before the attempt ends, else a worker could claim the job
        again; and not where `put` would refuse the request, which must leave the job as it is. TooManyRequests;
        StoreError."""
        _live(self.under_way(), now, by[:MOST_NAME])
        cancel()

    def take(self, now: int, mark: int) -> list[HostRequest]:
        """The waiting requests, which nobody else gets from now on. Those that are too old are left. StoreError: some
        may be taken, and are not to be carried out."""
        taken: list[HostRequest] = []

        def mark_taken(cell: Value) -> Value:
            found = _decode(cell)
            due = {one.id for one in found if _state(one, now) is _WAITING}
            changed = [replace(one, state=_TAKEN, taken=now, mark=mark) if one.id in due else one for one in found]
            taken[:] = [one for one in changed if one.id in due]
            return _encode(changed) if due else cell

        change_cell(self._store, OPEN + self._instance, mark_taken)
        return taken

    def under_way(self) -> list[HostRequest]:
        """Those that wait or were taken, as stored; cheap. StoreError."""
        return _decode(reachable_part(lambda: self._store.kv_get(OPEN + self._instance)))

    def end(self, request: HostRequest, state: RequestState, text: str, now: int) -> None:
        """Stores the outcome of a request. StoreError."""
        # The end of a traceback is the error; the innermost call of a stack is its end, too.
        outcome = replace(request, state=state, text=text[-MAX_TEXT:], ended=now)

        def add(cell: Value) -> Value:
            kept = [one for one in _decode(cell) if one.id != request.id and now - one.at < KEPT]
            return _encode([*kept, outcome][-MOST_ENDED:])

        # First the outcome: a request that is in both cells has ended.
        change_cell(self._store, ENDED + self._instance, add)
        change_cell(self._store, OPEN + self._instance, lambda cell: _encode(_without(cell, request.id)))

    def known(self, now: int) -> Sequence[HostRequest]:
        """All that are known, the newest first. StoreError."""
        ended = _decode(reachable_part(lambda: self._store.kv_get(ENDED + self._instance)))
        known = {one.id for one in ended}
        open_ones = [replace(one, state=_state(one, now)) for one in self.under_way() if one.id not in known]
        return sorted([*ended, *open_ones], key=lambda one: one.at, reverse=True)


_WAITING, _TAKEN = RequestState.WAITING, RequestState.TAKEN


def new_request(act: HostAct, by: str, now: int, job: Job | None = None) -> HostRequest:
    """A request that nobody has made yet. by: the name of who asks. job: the one that it is about, which runs."""
    request = HostRequest(ids.text(ids.uuid7()), act, now, by[:MOST_NAME])
    return request if job is None else replace(request, owner=job.owner, job=ids.text(job.id), epoch=job.epoch)


def why_none(host: Host) -> str:
    """Why that master takes no requests; empty: it takes them."""
    if not host.is_alive:
        return f"the master of {host.name} is lost: it takes no requests"
    if not host.remote_control:
        return f"the master of {host.name} takes no requests through the store ([master] remote_control)"
    return ""


def sweep(store: Store, hosts: Sequence[Host], now: int) -> None:
    """Removes what was kept for long enough, and cells of masters that are gone. hosts: those that are known."""
    known = {host.instance for host in hosts}
    for prefix in (OPEN, ENDED):
        for name, cell in reachable_part(lambda: store.kv_list(prefix)).items():  # noqa: B023
            newest = max((one.at for one in _decode(cell)), default=0)
            if name.removeprefix(prefix) not in known or now - newest >= KEPT:
                with contextlib.suppress(StoreAway):
                    store.kv_cas(name, None, cell)


def _live(requests: Sequence[HostRequest], now: int, by: str) -> list[HostRequest]:
    """Those that are under way; TooManyRequests: there may not be another, of `by` or at all."""
    live = [one for one in requests if _state(one, now) in (_WAITING, _TAKEN)]
    own = sum(one.by == by for one in live)
    if by and own >= MOST_OF_CALLER:
        raise TooManyRequests(f"{own} requests of {by} to this host are under way: wait for their outcome")
    if len(live) >= MOST_OPEN:
        raise TooManyRequests(f"{len(live)} requests to this host are under way: wait for their outcome")
    return live


def _state(request: HostRequest, now: int) -> RequestState:
    """The state of a request that has no outcome yet. One from the future, by a clock that was set back, is no younger
    than others."""
    if request.state is _WAITING and abs(now - request.at) >= TAKEN_WITHIN:
        return RequestState.EXPIRED
    if request.state is _TAKEN and abs(now - request.taken) >= ENDED_WITHIN:
        return RequestState.LOST
    return request.state


def _without(cell: Value, id: str) -> list[HostRequest]:
    return [one for one in _decode(cell) if one.id != id]


def _encode(requests: Sequence[HostRequest]) -> Value:
    return msgspec.json.encode(requests) if requests else None


def _decode(cell: Value) -> list[HostRequest]:
    """What is no request is left out: whoever can write to the store may have written anything."""
    return list(_valid(cell))[-(MOST_OPEN + MOST_ENDED) :]


def _valid(cell: Value) -> Iterator[HostRequest]:
    if cell is None or len(cell) > _MAX_CELL:
        return
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        for each in decode_json(cell, list[msgspec.Raw]):
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                request = decode_json(each, HostRequest)
                if _is_id(request.job) if request.job else request.act is not HostAct.KILL:
                    yield request


def _is_id(text: str) -> bool:
    try:
        ids.parse(text)
    except ValueError:
        return False
    return True
