"""The options of a flow, and those that its nodes may not have."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from tarry.model.duration import Duration, microseconds
from tarry.model.flow.wiring import COMPENSATE, GO_ON, STOP
from tarry.model.job import check_labels
from tarry.tasks.arguments.options import MAX_NAME, Options

OnFailure = Literal["stop", "go_on", "compensate"]
_POLICIES = {"stop": STOP, "go_on": GO_ON, "compensate": COMPENSATE}
_OF_THE_FLOW = {
    "key": "key=",
    "unique_for": "key=, which it holds until it has ended",
    "idempotency": "key=",
    "connection": "connection=",
}
"""Options that the flow has, and not its nodes."""


class FlowOptions(Struct, frozen=True):
    """How a flow is stored and kept. None: as it is by default."""

    key: str | None = None
    """At most one unfinished flow of a name holds it."""
    deadline: Duration | None = None
    """So long after it was stored, a flow that has not ended is cancelled, and dead."""
    on_failure: OnFailure = "stop"
    """What follows when a node fails that says nothing else."""
    connection: Any = None
    queue: str | None = None
    """The queue of the nodes that say nothing else."""
    keep: Duration | None = None
    """How long the flow and its nodes are kept after its end."""
    labels: Mapping[str, str] | None = None
    """Of the flow, and of its nodes beside their own."""

    def with_given(self, given: Mapping[str, Any]) -> "FlowOptions":
        """These options, with those of `given` that are not None; ValueError with the name of a wrong one."""
        return replace(self, **{name: value for name, value in given.items() if value is not None}).check()

    def check(self) -> "FlowOptions":
        """Returns these options, with labels of their own; ValueError with the name of a wrong one."""
        policy(self.on_failure)
        for name, duration in (("deadline", self.deadline), ("keep", self.keep)):
            if duration is not None:
                microseconds(duration, name)
        for name, value in (("key", self.key), ("queue", self.queue)):
            if value is not None and not (isinstance(value, str) and 0 < len(value) <= MAX_NAME):
                raise ValueError(f"{name}={value!r}: text of 1 to {MAX_NAME} characters")
        return self if self.labels is None else replace(self, labels=check_labels(self.labels))


def policy(on_failure: str) -> int:
    """STOP, GO_ON or COMPENSATE; ValueError."""
    found = _POLICIES.get(on_failure)
    if found is None:
        raise ValueError(f'on_failure={on_failure!r}: "stop", "go_on" or "compensate"')
    return found


def check_node(task: str, options: Options) -> None:
    """ValueError if these options of a call are none that a node may have."""
    for name, instead in _OF_THE_FLOW.items():
        if getattr(options, name) is not None:
            raise ValueError(f"{task}: {name}= is not for a job of a flow; the flow has {instead}: app.flow(name, ...)")
    if options.durable is not None:
        raise ValueError(f"{task}: durable= is not for a job of a flow")
