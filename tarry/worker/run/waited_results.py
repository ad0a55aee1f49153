"""The results of the nodes that a node comes after, page by page: for a task that could not take them all at once."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tarry.client.flows import map_part
from tarry.errors import ArgumentError, PayloadUnavailable
from tarry.model.checks.unreadable import explain, is_altered, is_sealed, token_of
from tarry.model.flow.node_ids import flow_of, index_of, node_id
from tarry.model.flow.wiring import AFTER, Ref, added_nodes, unwrap
from tarry.model.job import Job, State
from tarry.model.verdict import Snooze
from tarry.store.rules.base import Store
from tarry.tasks.arguments.codec import plain_result
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.shield import shielded

PAGE = 1000
"""Nodes that are read in one call of the store."""
_SEALED_AGAIN = _AWAY_AGAIN = 10
_AGAIN = 1
"""Seconds until a job comes again whose node runs once more just now."""


class WaitedResults:
    """tasks: those of the app, which know the types of their results. task: the one that reads, for errors."""

    def __init__(self, store: Store, tasks: Mapping[str, TaskDefinition[Any, Any]], task: str) -> None:
        self._store, self._tasks, self._task = store, tasks, task

    def pages(self, job: Job) -> Iterator[list[Any]]:
        """See `Inputs.pages`."""
        wiring, _ = unwrap(job.body)
        for take in wiring.takes if wiring is not None else ():
            if take.place == AFTER:
                yield from self._pages(flow_of(job.id), take.ref)

    def _pages(self, flow: bytes, ref: Ref) -> Iterator[list[Any]]:
        for start in range(0, len(ref.nodes), PAGE):
            indices = ref.nodes[start : start + PAGE]
            with shielded:
                found = {index_of(job.id): job for job in self._read(flow, indices)}
            page: list[Any] = []
            for index in indices:
                job = self._require_ended(found.get(index), index)
                added = added_nodes(job.note) if job.state is State.DONE else None
                if added is None:
                    page += self._elements(job, is_part=ref.count < 0)
                    continue
                # Those that it has added stand in its place, however many.
                yield page
                page = []
                yield from self._pages(flow, added)
            yield page

    def _read(self, flow: bytes, indices: range) -> list[Job]:
        if len(indices) == 1:
            return [job for job in self._store.get([node_id(flow, indices[0])]) if job is not None]
        return self._store.flows.nodes(flow, indices[0] - 1, len(indices))

    def _require_ended(self, job: Job | None, index: int) -> Job:
        if job is None or job.state is State.BLOCKED:
            raise ArgumentError(f"{self._task}: the result of node {index} is gone")
        if not job.state.finished:
            # A person runs it again just now.
            raise Snooze(_AGAIN)
        self._require_open(job, index)
        return job

    def _require_open(self, job: Job, index: int) -> None:
        if not is_sealed(job.note):
            return
        if is_altered(token := token_of(job.note)):
            raise ArgumentError(f"{self._task}: the result of node {index} is {explain(token)}")
        # Another worker has the key.
        raise Snooze(_SEALED_AGAIN)

    def _elements(self, job: Job, is_part: bool) -> list[Any]:
        if job.state is not State.DONE:
            return [None] * (map_part.count_items(self._load(self._store.load_arguments, job).body) if is_part else 1)
        job = self._load(self._store.load_result, job)
        self._require_open(job, index_of(job.id))
        task = self._tasks.get(job.task) or map_part.find(job.task, self._tasks)
        result = plain_result(job) if task is None else task.codec.decode_result(job.note or b"null")
        return [*result] if is_part else [result]

    def _load(self, load: Callable[[Job], Job], job: Job) -> Job:
        try:
            with shielded:
                return load(job)
        except PayloadUnavailable:
            raise Snooze(_AWAY_AGAIN) from None
