"""The health of the endpoints of HTTP tasks, for display."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from tarry.model.duration import SECOND, format_duration

if TYPE_CHECKING:
    from tarry.push.endpoint.endpoint_settings import Endpoint
    from tarry.push.endpoint.flow import FlowState
    from tarry.store.rules.base import Store

CLOSED = "closed"


class EndpointHealth(Struct, frozen=True):
    """The health of the endpoint of one HTTP task."""

    task: str
    to: str
    """Its URL without parts that may be secret."""
    at_once: int | None
    """How many requests it may get at once now, over all hosts; None: not known yet."""
    in_flight: int
    enabled: bool
    circuit: str
    """`closed`, `open`, `half open` or `asked to wait`."""
    opens: float | None
    """Seconds until requests are sent again; None: they are sent now, or it is not known."""
    trouble: str
    """The last error."""
    since: float | None = None
    """Since when the circuit is not closed, in seconds since the epoch; None: it is, or it is not known."""
    waiting: int | None = None
    """Jobs that are ready or scheduled; None: not counted yet."""

    @property
    def problem(self) -> str:
        """What is wrong now, in a few words; empty if nothing is."""
        if not self.enabled:
            return "disabled"
        if self.circuit == CLOSED:
            return ""
        return f"{self.circuit}, {format_duration(round(self.opens) * SECOND)}" if self.opens else self.circuit


def circuit(state: "FlowState | None") -> str:
    """See `EndpointHealth`."""
    if state is None or not (state.until or state.probing):
        return CLOSED
    return "half open" if state.probing else "open" if state.opened else "asked to wait"


def at_once(endpoint: "Endpoint", state: "FlowState | None") -> int | None:
    """See `EndpointHealth`."""
    return None if state is None else min(state.allowed, endpoint.concurrency or state.allowed)


def endpoint_health(store: "Store", endpoints: "Mapping[str, Endpoint]", now: int) -> list[EndpointHealth]:
    """The health of these endpoints, sorted by name. now: microseconds by the store's clock. StoreError."""
    if not endpoints:
        return []
    from tarry.model.limit import TASK  # noqa: PLC0415 - most apps have no HTTP tasks
    from tarry.push.endpoint.endpoint_cells import read_flows  # noqa: PLC0415
    from tarry.store.rules.partial_result import reachable_part  # noqa: PLC0415

    levels, states = reachable_part(store.limits), read_flows(store)
    found = []
    for name, endpoint in sorted(endpoints.items()):
        state = states[name][0] if name in states else None
        left = (state.until - now) / SECOND if state is not None and state.until else 0
        running = levels[TASK + name][1].running if TASK + name in levels else 0
        found.append(
            EndpointHealth(
                name,
                endpoint.url.shown,
                at_once(endpoint, state),
                running,
                endpoint.enabled,
                circuit(state),
                left if left > 0 else None,
                state.why if state else "",
                state.since / SECOND if state is not None and state.since else None,
            )
        )
    return found
