"""The arguments of a node that are results of other nodes: read from the store when the node runs.

Nothing is copied when a node is released: until it runs, a node that takes 100,000 results costs no more than others. A
worker keeps the results that it settled last: in a chain, each link finds the one before there.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import msgspec

from tarry.client.flows import map_part
from tarry.errors import ArgumentError, PayloadLost, PayloadUnavailable, StoreError
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE, explain, is_altered, is_apart, is_sealed, token_of
from tarry.model.duration import SECOND
from tarry.model.flow.node_ids import flow_of, index_of, node_id
from tarry.model.flow.wiring import AFTER, Ref, Take, added_nodes, split, unwrap
from tarry.model.job import Job, State
from tarry.store.rules.base import Store
from tarry.tasks.arguments.argument_errors import ArgumentsAway, ArgumentsLater, ArgumentsSealed
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.running import Running, jobs_of
from tarry.tasks.shield import shielded
from tarry.worker.run.waited_results import WaitedResults

MAX_COLLECTED = 16 * 2**20
"""Bytes of all results that one node takes."""
KEPT = 16 * 2**20
"""Bytes of results that a worker keeps."""
_AT_ONCE = 1000
_EXPANDS = 8
"""How deep results of nodes that have added nodes may lie in each other."""
_UNFINISHED = (State.READY, State.SCHEDULED, State.RUNNING)


class NodeInputs:
    """Finds results of nodes for one worker. Its methods may be called in any thread. tasks: those of the app."""

    def __init__(self, store: Store, tasks: Mapping[str, TaskDefinition[Any, Any]] | None = None) -> None:
        self.store, self._tasks = store, tasks or {}
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._size = 0

    def keep(self, id: bytes, result: bytes) -> None:
        """Keeps the result of a node that is done. One thread at a time."""
        # A result that may be large is sealed by its attempt already, also if it has turned out to be small enough.
        if len(result) <= KEPT // 16 and not is_apart(result) and not is_sealed(result):
            self._size += len(result) - len(self._kept.pop(id, b""))
            self._kept[id] = result
        while self._size > KEPT:
            self._size -= len(self._kept.popitem(last=False)[1])

    def arguments(self, job: Job) -> bytes:
        """The arguments of a job, with the results that a node takes; ArgumentError if one is gone, or all are too
        large; ArgumentsLater if one is not there just now; ArgumentsAway."""
        try:
            wiring, arguments = unwrap(self._with_own(job).body)
        except UNREADABLE as error:
            raise ArgumentError(f"{job.task}: {error}") from None
        takes = () if wiring is None else [take for take in wiring.takes if take.place != AFTER]
        if not takes:
            return arguments
        try:
            with shielded:
                return _splice(arguments, self._values(job, takes))
        except StoreError as error:
            raise ArgumentsLater(f"{job.task}: its arguments cannot be read: {error}", SECOND) from None

    def _with_own(self, job: Job) -> Job:
        """The job with the arguments of its own that may be kept outside of the store."""
        try:
            with shielded:
                loaded = self.store.load_arguments(job)
        except PayloadUnavailable as error:
            raise ArgumentsAway(str(error)) from None
        except PayloadLost as error:
            raise ArgumentError(str(error)) from None
        if loaded is not job and is_sealed(split(job.id, loaded.body)[1]):
            raise ArgumentsSealed(loaded)
        return loaded

    def pages(self, job: Job) -> Iterator[list[Any]]:
        """See `Inputs.pages`."""
        return WaitedResults(self.store, self._tasks, job.task).pages(job)

    def _values(self, job: Job, takes: Sequence[Take]) -> dict[int | str, bytes]:
        """The values as JSON, by the place of the argument."""
        budget = _Budget(job.task, max(MAX_COLLECTED, self.store.most_apart))
        flow = flow_of(job.id)
        values: dict[int | str, list[bytes]] = {}
        lists: set[int | str] = set()
        for take in takes:
            values.setdefault(take.place, []).extend(self._results(flow, take.ref, budget))
            if take.ref.count:
                lists.add(take.place)
        return {place: _as_list(found) if place in lists else found[0] for place, found in values.items()}

    def _results(self, flow: bytes, ref: Ref, budget: "_Budget", depth: int = 0) -> Iterator[bytes]:
        for indices, results in self._read(flow, ref, budget):
            budget.spend(results, indices)
            if ref.count < 0:
                # Parts of a map, each with a list.
                yield from chain.from_iterable(map(budget.elements, results, indices))
                continue
            for index, result in zip(indices, results, strict=True):
                added = added_nodes(result)
                if added is None:
                    yield result
                elif depth < _EXPANDS:
                    yield _as_list(list(self._results(flow, added, budget, depth + 1)))
                else:
                    raise ArgumentError(f"{budget.task}: the result of node {index} lies too deep")

    def _read(self, flow: bytes, ref: Ref, budget: "_Budget") -> Iterator[tuple[range, list[bytes]]]:
        """Indices and results of these nodes, by pages."""
        kept = self._kept
        for start in range(0, len(ref.nodes), _AT_ONCE):
            indices = ref.nodes[start : start + _AT_ONCE]
            results = [result for index in indices if (result := kept.get(node_id(flow, index))) is not None]
            if len(results) < len(indices):
                jobs = self._jobs(flow, indices)
                results = [self._result(budget, jobs.get(index), index, ref.count < 0) for index in indices]
            yield indices, results

    def _result(self, budget: "_Budget", job: Job | None, index: int, is_part: bool) -> bytes:
        if is_part and job is not None and job.state is not State.DONE:
            # How many items it had is in its arguments.
            job = self._with_own(job)
        result = budget.result(job, index, is_part)
        if job is None or not is_apart(result):
            return result
        from tarry.store.rules.payload_reference import full_size  # noqa: PLC0415 - most results are small

        budget.require(full_size(result), index)
        try:
            loaded = self.store.load_result(job).note
        except PayloadLost as error:
            raise ArgumentError(f"{budget.task}: {error}") from None
        _require_open(loaded, index, budget.task)
        return loaded

    def _jobs(self, flow: bytes, indices: range) -> dict[int, Job]:
        if len(indices) == 1:
            job = self.store.get([node_id(flow, indices[0])])[0]
            return {} if job is None else {indices[0]: job}
        return {index_of(job.id): job for job in self.store.flows.nodes(flow, indices[0] - 1, len(indices))}


class _Budget:
    """What one node may take in all, and what becomes of a node whose result cannot be had."""

    def __init__(self, task: str, most: int) -> None:
        self.task = task
        self._most = self._left = most

    def spend(self, results: Sequence[bytes], indices: range) -> None:
        left, self._left = self._left, self._left - sum(map(len, results))
        if self._left < 0:
            sizes = zip(indices, accumulate(map(len, results)), strict=True)
            raise self._too_large(next(index for index, size in sizes if size > left))

    def require(self, size: int, index: int) -> None:
        """ArgumentError if a result of this size, which is not read yet, would be too much."""
        if size > self._left:
            raise self._too_large(index)

    def _too_large(self, index: int) -> ArgumentError:
        return ArgumentError(
            f"{self.task}: the results that it takes are more than {self._most >> 20} MB, up to node {index};"
            " name it in after= instead, and read current_job().results(), or return where the data are"
        )

    def elements(self, result: bytes, index: int) -> Sequence[bytes]:
        """The elements of a result that is a list, of a part of a map."""
        try:
            return [bytes(each) for each in decode_json(result, list[msgspec.Raw])]
        except UNREADABLE:
            raise ArgumentError(f"{self.task}: the result of node {index} is no list") from None

    def result(self, job: Job | None, index: int, is_part: bool) -> bytes:
        """is_part: it is a part of a map, whose result is a list."""
        if job is None or job.state is State.BLOCKED:
            raise ArgumentError(f"{self.task}: the result of node {index} is gone")
        if job.state in _UNFINISHED:
            # A person runs it again just now.
            raise ArgumentsLater(f"{self.task}: node {index} runs again", SECOND)
        _require_open(job.note, index, self.task)
        if job.state is State.DONE:
            return job.note or b"null"
        # It has not ended well, and its flow went on.
        return _as_list([b"null"] * map_part.count_items(job.body)) if is_part else b"null"


def _require_open(result: bytes, index: int, task: str) -> None:
    if is_sealed(result):
        token = token_of(result)
        why = f"{task}: the result of node {index} is {explain(token)}"
        # This worker has the key of an altered one: no other can open it either.
        raise ArgumentError(why) if is_altered(token) else ArgumentsAway(why)


async def fetch(running: Running) -> None:
    """Reads what the jobs of this attempt take, in a thread, so that the loop does not wait for the store."""
    if any(member.inputs is not None for member in jobs_of(running)):
        await asyncio.to_thread(_fetch_all, jobs_of(running))


def _fetch_all(members: Sequence[Running]) -> None:
    for member in members:
        member.fetch_arguments()


def _as_list(results: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(results) + b"]"


def _splice(arguments: bytes, values: dict[int | str, bytes]) -> bytes:
    """The arguments with these values in their places."""
    raw: Any = decode_json(arguments, dict[str, msgspec.Raw] if arguments[:1] == b"{" else list[msgspec.Raw])
    for place, value in values.items():
        raw[place] = msgspec.Raw(value)
    return msgspec.json.encode(raw)
