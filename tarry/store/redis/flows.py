"""The flows and signals in a Redis server: see `lua/flows.lua` and `lua/signals.lua`."""

from collections.abc import Callable, Collection, Iterator, Sequence
from struct import Struct as Form
from typing import Any, Protocol

from msgspec.structs import replace

from tarry.model.flow.node_ids import MAX_NODES, flow_of, node_id
from tarry.model.flow.signal import Signal, SignalWait
from tarry.model.flow_row import FlowChange, FlowRow, Phase
from tarry.model.job import Job, State
from tarry.store.redis import scripts
from tarry.store.redis.flow_effects import pack_address, pack_flow, pack_gate_rows, parse_flow
from tarry.store.redis.link.base import Word
from tarry.store.redis.reading import parse_jobs
from tarry.store.redis.record import STATE_BYTE, pack_job, time_bytes
from tarry.store.rules import flows as verbs
from tarry.store.rules.base import Query
from tarry.store.rules.flows import (
    RELEASED_AT_ONCE,
    STORING_TIME,
    FlowQuery,
    NewFlow,
    StoreFlows,
    abandoned,
    deleted_meanwhile,
)
from tarry.store.rules.history.journal import record_of_new

_LAST_INDEX = 2**32 - 1
_SEEN, _AWAITED = Form(">iii"), Form(">IQH")
_AT_ONCE = 1000
"""How many flows one script reads, so that other calls get their turn between."""
_NEVER_STORED = abandoned(FlowRow(b"", Phase.STORING, 0, 0, 0, 0)).note


class RedisJobs(Protocol):
    """What it needs of the store."""

    def find(self, query: Query) -> list[Job]:
        """As `Store.find`."""


class RedisFlows(StoreFlows):
    """The flows of one store. run: runs a script with its arguments; command: a command on a key of the store."""

    def __init__(self, store: RedisJobs, run: Callable[..., Any], command: Callable[..., Any]) -> None:
        self._store, self._run, self._command = store, run, command
        self._looked_at = b""
        """Who was checked last of those that wait for a signal."""

    def _insert(self, new: NewFlow, now: int) -> bytes:
        jobs = [new.root, *new.nodes]
        stored = [word for job in jobs for word in (job.id, pack_job(job))]
        rows = pack_flow(new.flow), pack_gate_rows(new.gates)
        return bytes(self._run(scripts.INSERT_FLOW, new.flow.id, *rows, len(jobs), *stored, record_of_new(jobs)))

    def _insert_nodes(self, jobs: Sequence[Job]) -> None:
        if jobs:
            stored = [word for job in jobs for word in (job.id, pack_job(job))]
            if not self._run(scripts.INSERT_NODES, flow_of(jobs[0].id), len(jobs), *stored, record_of_new(jobs)):
                raise deleted_meanwhile()

    def grow(self, flow: bytes, count: int) -> int | None:
        first: int | None = self._run(scripts.GROW_FLOW, flow, count, MAX_NODES)
        return first

    def nodes(self, flow: bytes, after: int, limit: int, states: Collection[State] = ()) -> list[Job]:
        first, last = node_id(flow, max(0, after)), node_id(flow, _LAST_INDEX)
        return self._store.find(Query(states=tuple(states), after=first, until=last, limit=max(0, limit)))

    def find(self, query: FlowQuery) -> list[FlowRow]:
        found: list[FlowRow] = []
        for ids in self._candidates(query):
            found += [row for row in self._read(ids) if query.matches(row)]
            if len(found) >= query.limit:
                break
        return found[: max(0, query.limit)]

    def _candidates(self, query: FlowQuery) -> Iterator[list[bytes]]:
        """Ids of flows that may match, the newest first, by pages."""
        # Few flows have not ended, and few have come to their time.
        if query.phases and (query.at_before is not None or Phase.ENDED not in query.phases):
            last = "+inf" if query.at_before is None else query.at_before
            of = (self._command("ZRANGEBYSCORE", _by_time(phase), "-inf", last) for phase in query.phases)
            ids = sorted((id for some in of for id in some if not query.before or id < query.before), reverse=True)
            yield from (ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE))
        else:
            yield from self._newest_first(query.before)

    def _newest_first(self, before: bytes) -> Iterator[list[bytes]]:
        while True:
            begin = b"(" + before if before else b"+"
            pages = self._command("ZREVRANGEBYLEX", "flowids", begin, "-", "LIMIT", 0, 30)
            if not pages:
                return
            ids = [page[at : at + 16] for page in pages for at in range(len(page) - 16, -1, -16)]
            yield [id for id in ids if not before or id < before]
            before = ids[-1]

    def _read(self, ids: Sequence[bytes]) -> list[FlowRow]:
        rows, records = self._run(scripts.READ_FLOWS, *ids) if ids else ((), ())
        flat = [word for id, record in zip(ids, records, strict=True) for word in (id, record, None)]
        roots = {job.id: job for job in parse_jobs(flat)}
        return [replace(parse_flow(id, row), root=roots.get(id)) for id, row in zip(ids, rows, strict=True) if row]

    def get(self, flow: bytes) -> FlowRow | None:
        row = self._command("HGET", "flows", flow)
        return parse_flow(flow, row) if row else None

    def change(self, change: FlowChange, now: int) -> bool:
        values: list[Word | None] = [
            None if change.ends is None else STATE_BYTE[change.ends], change.note,
            None if change.at is None else time_bytes(change.at), change.active, change.failed, change.blocked,
        ]  # fmt: skip
        words = [word for value in values for word in ((0, b"") if value is None else (1, value))]
        seen = b"" if change.seen is None else _SEEN.pack(*change.seen)
        phases = int(change.was), int(change.to)
        return bool(self._run(scripts.CHANGE_FLOW, now, verbs.RELEASED_AT_ONCE, change.id, *phases, seen, *words))

    def release_more(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        return bool(self._run(scripts.RELEASE_MORE, now, limit, verbs.FLOWS_AT_ONCE, verbs.WOKEN_AT_ONCE))

    def tidy(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        bounds = verbs.KEPT_NODES, STORING_TIME, _NEVER_STORED
        more, self._looked_at = self._run(scripts.TIDY_FLOWS, now, limit, *bounds, self._looked_at)
        return bool(more)

    # Signals

    def _send(self, signal: Signal, now: int) -> tuple[int, bool]:
        kept = time_bytes(signal.until) + signal.value
        words = now, pack_address(signal.name, signal.key), signal.id, signal.until, kept
        woken, more = self._run(scripts.SIGNAL, *words, verbs.WOKEN_AT_ONCE)
        return int(woken), bool(more)

    def _wake_more(self, name: str, key: str, now: int) -> tuple[int, bool]:
        woken, more = self._run(scripts.WAKE_MORE, now, pack_address(name, key), verbs.WOKEN_AT_ONCE)
        return int(woken), bool(more)

    def signals(self, job: bytes, name: str, key: str, after: int) -> list[Signal]:
        numbers, ids, kept = self._run(scripts.READ_SIGNALS, pack_address(name, key), after)
        return [
            Signal(name, key, id, value[8:], int.from_bytes(value[:8], "big"), int(number))
            for number, id, value in zip(numbers, ids, kept, strict=True)
        ]

    def awaiting(self, prefix: str, limit: int, after: SignalWait | None = None) -> list[SignalWait]:
        found: list[SignalWait] = []
        begin, end = b"[" + prefix.encode(), b"(" + prefix.encode() + b"\xff"
        if after is not None:
            # A job waits at one place at a time: what follows its id does not matter.
            address = b"\0".join((after.name.encode(), after.key.encode(), after.job))
            begin = b"(" + address + b"\xff" * _AWAITED.size
        while len(found) < limit:
            members, last = self._run(scripts.READ_AWAITED, begin, end, limit - len(found))
            found += [one for one in map(_parse_awaited, members) if one.name.startswith(prefix)]
            if not last:
                break
            begin = b"(" + last
        return found


def _by_time(phase: Phase) -> str:
    return f"flowat:{int(phase)}"


def _parse_awaited(member: bytes) -> SignalWait:
    """A member of `awaited` (`lua/signals.lua`)."""
    epoch, after, length = _AWAITED.unpack_from(member, len(member) - _AWAITED.size)
    place = len(member) - _AWAITED.size - 16
    name, key = member[:length].decode(), member[length + 1 : place - 1].decode()
    return SignalWait(name, key, member[place : place + 16], epoch, after)
