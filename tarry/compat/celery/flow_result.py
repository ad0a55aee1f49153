"""What a chain, a group or a chord gives when it is enqueued: a flow by Celery's names."""

from typing import Any

from tarry.client.flows.handle import FlowHandle
from tarry.client.handle import Handle
from tarry.compat.celery.result import AsyncResult, ResultMixin
from tarry.compat.celery.sending.values import from_json
from tarry.compat.celery.states import FAILURE, PENDING, REVOKED, STARTED, SUCCESS
from tarry.errors import FlowFailed, JobCancelled
from tarry.model.job import State

_STATES = {State.RUNNING: STARTED, State.DONE: SUCCESS, State.DEAD: FAILURE, State.CANCELLED: REVOKED}


class FlowResult(ResultMixin):
    """A flow. `get` gives the result of its last call; of a group, the list of results."""

    def __init__(self, handle: FlowHandle[Any], app: Any, is_list: bool = False) -> None:
        self.flow, self.app, self.is_list = handle, app, is_list
        self.parent = None

    @property
    def id(self) -> str:
        """The id of the flow."""
        return self.flow.id

    @property
    def task_id(self) -> str:
        """The id of the flow."""
        return self.flow.id

    @property
    def state(self) -> str:
        """STARTED until it has ended, then SUCCESS, FAILURE or REVOKED."""
        return _STATES.get(self.flow.state, PENDING)

    def get(self, timeout: float | None = None, propagate: bool = True, **ignored: Any) -> Any:
        """Waits for the result. FlowFailed if a call failed; propagate=False: returns the error."""
        try:
            return from_json(self.flow.result(timeout))
        except (FlowFailed, JobCancelled) as error:
            if propagate:
                raise
            return error

    wait = get
    join = get
    join_native = get

    @property
    def result(self) -> Any:
        """The result, or the error; None while there is none."""
        return self.get(timeout=5, propagate=False) if self.ready() else None

    info = result

    def forget(self) -> None:
        """Nothing: the flow is deleted when its time of keeping is over."""

    @property
    def results(self) -> list[AsyncResult]:
        """The jobs of the flow, in the order in which they were added."""
        return [AsyncResult(node.id, self.app) for node in self.flow.nodes()]

    children = results

    def completed_count(self) -> int:
        """How many of its jobs are done."""
        return sum(_is_done(node) for node in self.flow.nodes())

    def revoke(self, *args: Any, **ignored: Any) -> None:
        """Cancels what has not ended."""
        self.flow.cancel("revoked")

    def __repr__(self) -> str:
        return f"<FlowResult: {self.id}>"


def _is_done(node: Handle[Any]) -> bool:
    return node.state is State.DONE
