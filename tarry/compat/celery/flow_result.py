"""What a chain, a group or a chord gives when it is enqueued: a flow by Celery's names."""

from collections.abc import Sequence
from typing import Any

from tarry.client.flows.flow_handle import FlowHandle
from tarry.client.handle import Handle
from tarry.compat.celery.message import from_json
from tarry.compat.celery.result import AsyncResult, GroupResult, error_of_job
from tarry.compat.celery.states import FAILURE, PENDING, REVOKED, STARTED, SUCCESS
from tarry.errors import FlowFailed, JobCancelled, JobFailed, ResultTimeout
from tarry.model.flow.node_ids import node_id
from tarry.model.job import State
from tarry.store.rules import ids

_STATES = {State.RUNNING: STARTED, State.DONE: SUCCESS, State.DEAD: FAILURE, State.CANCELLED: REVOKED}

ResultStep = int | list[int]
"""A step of a flow: the index of its job, or those of jobs that stand side by side."""


class FlowResult(AsyncResult):
    """A flow with a call at its end, as chains and chords have one. Its id is that of the last job."""

    def __init__(self, handle: FlowHandle[Any], app: Any, last: int) -> None:
        super().__init__(_id(handle, last), app)
        self.flow = handle
        self.children = []

    @property
    def state(self) -> str:
        """STARTED until the flow has ended, then SUCCESS, FAILURE or REVOKED."""
        return _STATES.get(self.flow.state, PENDING)

    def _value(self, timeout: float | None) -> Any:
        return self.flow.result(timeout)

    def _error(self, failure: JobFailed) -> Exception:
        return _error(failure)

    @property
    def traceback(self) -> str | None:
        """The traceback of the first job that failed."""
        failed = next(iter(self.flow.failed_nodes()), None)
        return None if failed is None else AsyncResult(failed.id, self.app).traceback

    def forget(self) -> None:
        """Nothing: the flow is deleted when its time of keeping is over."""

    @property
    def results(self) -> list[AsyncResult]:
        """The jobs of the flow, in the order in which they were added."""
        return [AsyncResult(node.id, self.app) for node in self.flow.nodes()]

    def completed_count(self) -> int:
        """How many of its jobs are done."""
        return sum(_is_done(node) for node in self.flow.nodes())

    def revoke(self, *args: Any, **ignored: Any) -> None:
        """Cancels what has not ended."""
        self.flow.cancel("revoked")

    def __repr__(self) -> str:
        return f"<FlowResult: {self.id}>"


class GroupFlowResult(GroupResult):
    """A flow with a group at its end. Its id is that of the flow."""

    def __init__(self, handle: FlowHandle[Any], app: Any, last: Sequence[int]) -> None:
        super().__init__(handle.id, [AsyncResult(_id(handle, index), app) for index in last], app)
        self.task_id, self.flow = handle.id, handle

    @property
    def state(self) -> str:
        """STARTED until the flow has ended, then SUCCESS, FAILURE or REVOKED."""
        return _STATES.get(self.flow.state, PENDING)

    def get(self, timeout: float | None = None, propagate: bool = True, **ignored: Any) -> Any:
        """Waits up to `timeout` seconds for the list of results; raises what a call raised. propagate=False: the errors
        stand among the results."""
        try:
            return from_json(self.flow.result(timeout))
        except ResultTimeout:
            raise
        except JobFailed as failure:
            error = _error(failure)
        except JobCancelled as cancelled:
            error = cancelled
        if propagate:
            raise error
        return [each.get(0, propagate=False) for each in self.results]

    def forget(self) -> None:
        """Nothing: the flow is deleted when its time of keeping is over."""

    def revoke(self, *args: Any, **ignored: Any) -> None:
        """Cancels what has not ended."""
        self.flow.cancel("revoked")


def result_of_flow(handle: FlowHandle[Any], app: Any, steps: Sequence[ResultStep]) -> Any:
    """The result of a flow of these steps; that of each step is the `parent` of the next, which is its child."""
    before: Any = None
    for step in steps[:-1]:
        before = _follow(before, _result_of_step(handle, app, step))
    last = steps[-1]
    whole = GroupFlowResult(handle, app, last) if isinstance(last, list) else FlowResult(handle, app, last)
    return _follow(before, whole)


def _follow(before: Any, result: Any) -> Any:
    result.parent = before
    if isinstance(before, AsyncResult):
        before.children = [result]
    return result


def _result_of_step(handle: FlowHandle[Any], app: Any, step: ResultStep) -> Any:
    if isinstance(step, int):
        return AsyncResult(_id(handle, step), app)
    return GroupResult(handle.id, [AsyncResult(_id(handle, index), app) for index in step], app)


def _id(handle: FlowHandle[Any], index: int) -> str:
    return ids.text(node_id(ids.parse(handle.id), index))


def _error(failure: JobFailed) -> Exception:
    """What the task of the job that failed raised, if it can be made again."""
    node: Handle[Any] | None = failure.node if isinstance(failure, FlowFailed) else None
    return failure if node is None else error_of_job(node.record(), failure)


def _is_done(node: Handle[Any]) -> bool:
    return node.state is State.DONE
