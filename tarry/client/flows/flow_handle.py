"""The handle of a flow that is stored."""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tarry.client.flows import flow_results
from tarry.client.flows.root import name_of
from tarry.client.follow import Event, Follow
from tarry.client.handle import Handle
from tarry.errors import JobNotFound
from tarry.model.flow.node_ids import index_of
from tarry.model.flow_row import FlowRow
from tarry.model.job import Job, State
from tarry.model.lifecycle import NotPossible
from tarry.store.rules import flow_operating
from tarry.store.rules.base import Store
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.shield import shielded

if TYPE_CHECKING:
    from tarry.client.client import Client

R = TypeVar("R")

NODES_AT_ONCE = 1000
"""How many nodes are read in one call of the store."""


class FlowHandle(Generic[R]):
    """A flow by its id. Every property asks the store; `flow.result()` waits."""

    __slots__ = ("_client", "_root")

    def __init__(self, client: "Client", root: Handle[Any]) -> None:
        self._client, self._root = client, root

    @property
    def id(self) -> str:
        """The id of the flow, which is that of the job that stands for it, in its usual form."""
        return self._root.id

    @property
    def is_new(self) -> bool | None:
        """True: this call stored the flow. False: an unfinished flow of this name holds the key, and this is it. None:
        not known yet: it waits in this process for a commit on another database."""
        return self._root.is_new

    @property
    def name(self) -> str:
        """The name of the flow."""
        return name_of(self._root.record())

    @property
    def key(self) -> str | None:
        """The key that it was stored with."""
        return self._root.record().key

    @property
    def state(self) -> State:
        """Until it has ended "running"; then "done", "dead" or "cancelled"."""
        state = self._root.state
        return State.RUNNING if state is State.BLOCKED else state

    @property
    def progress(self) -> float:
        """Which part of its nodes has ended, from 0 to 1."""
        row = self.record()
        nodes = row.size - 1 - (row.undo != 0)
        return 1 - (row.active + row.blocked) / nodes if nodes else 1.0

    def record(self) -> FlowRow:
        """The counters of the flow in the store, with its root; JobNotFound once it is deleted."""
        root = self._root.record()
        row = self._client.store.flows.get(root.id)
        if row is None:
            raise JobNotFound(f"no flow {self.id}: its time of keeping is over, or this is no flow")
        return flow_results.with_root(row, root)

    def result(self, timeout: float | None = None) -> R:
        """Waits up to `timeout` seconds (None: without end) for the end of the flow, and returns the result of its last
        node, or of that which `returns` names.

        ResultTimeout; FlowFailed if the flow is dead; JobCancelled; JobNotFound once it is deleted. ValueError if the
        results are more than 16 MiB: `results` has no limit.
        """
        root = self._root_id()
        return cast("R", flow_results.value(self._client, self._check_end(self._client.wait(root, timeout))))

    async def aresult(self, timeout: float | None = None) -> R:
        """The same, awaited."""
        ended = self._check_end(await self._client.await_finished(self._root_id(), timeout))
        return cast("R", await asyncio.to_thread(flow_results.value, self._client, ended))

    def results(self) -> Iterator[Any]:
        """The elements of a result that is a list, one by one, however many; of another one the result itself. The flow
        must have ended; errors as those of `result(0)`."""
        yield from flow_results.iterate(self._client, self._check_end(self._client.wait(self._root_id(), 0)))

    def nodes(self) -> Iterator[Handle[Any]]:
        """The jobs of the flow, in the order in which they were added."""
        return (Handle(self._client, job.id) for job in self._node_jobs())

    def failed_nodes(self) -> list[Handle[Any]]:
        """The jobs that ended badly: those that are dead or cancelled."""
        bad = (State.DEAD, State.CANCELLED)
        return [Handle(self._client, job.id) for job in self._node_jobs(bad)]

    def follow(self, timeout: float | None = None) -> Follow:
        """As `Job.follow`: iterates over the changes of the flow. It has only two: that it is there, and its end."""
        return self._root.follow(timeout)

    def afollow(self, timeout: float | None = None) -> AsyncIterator[Event]:
        """The same, for `async for` only."""
        return self._root.afollow(timeout)

    def cancel(self, reason: str = "") -> bool:
        """Cancels the flow: nothing that waits starts any more, and what is ready or runs is cancelled. It has ended
        once all of that has. False if it had ended already, or is being undone."""
        return self._try(partial(flow_operating.cancel_flow, reason=reason))

    def retry(self) -> bool:
        """Runs the failed nodes of a dead or cancelled flow again, and then what waited for them. False if it has not
        ended, is done, was undone, or another flow has its key now."""
        return self._try(flow_operating.retry_flow)

    async def astate(self) -> State:
        """`state`, awaited."""
        return await asyncio.to_thread(lambda: self.state)

    async def aprogress(self) -> float:
        """`progress`, awaited."""
        return await asyncio.to_thread(lambda: self.progress)

    async def arecord(self) -> FlowRow:
        """`record`, awaited."""
        return await asyncio.to_thread(self.record)

    async def acancel(self, reason: str = "") -> bool:
        """`cancel`, awaited."""
        return await asyncio.to_thread(self.cancel, reason)

    async def aretry(self) -> bool:
        """`retry`, awaited."""
        return await asyncio.to_thread(self.retry)

    def _try(self, act: Callable[[Store, bytes, int], object]) -> bool:
        """Does this to the flow; False if that is not possible."""
        try:
            with shielded:
                act(self._client.store, self._root_id(), self._client.clock.now())
        except NotPossible:
            return False
        return True

    def _root_id(self) -> bytes:
        return self._root.raw_id

    def _node_jobs(self, states: tuple[State, ...] = ()) -> Iterator[Job]:
        after = 0
        while page := self._client.store.flows.nodes(self._root_id(), after, NODES_AT_ONCE, states):
            yield from page
            after = index_of(page[-1].id)

    def _check_end(self, root: Job | None) -> Job:
        if root is None:
            raise JobNotFound(f"no flow {self.id}: it never existed, or its time of keeping is over")
        if root.state is not State.DONE:
            raise flow_results.failure(self._client, root)
        return root

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlowHandle) and other._root == self._root

    def __hash__(self) -> int:
        return hash(self._root)

    def __repr__(self) -> str:
        return f"<Flow {self.id}>"
