"""`app.flows`: the flows in the store."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tarry.client.flows.handle import FlowHandle
from tarry.client.handle import Handle
from tarry.model.flow.flow import Phase
from tarry.model.flow.node_ids import is_root
from tarry.model.job import State
from tarry.store import ids
from tarry.store.flows.flows import FlowQuery

if TYPE_CHECKING:
    from tarry.client.client import Client

_UNFINISHED = (Phase.STORING, Phase.RUNNING, Phase.CANCELLING, Phase.UNDOING)
_PHASES: Mapping[State, tuple[Phase, ...]] = {State.RUNNING: _UNFINISHED}
_AT_ONCE = 1000


class Flows:
    """Finds flows."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    def get(self, id: str | bytes) -> FlowHandle[Any]:
        """The flow with this id; ValueError if this is no id of a flow."""
        raw = ids.parse(id) if isinstance(id, str) else id
        if not is_root(raw):
            raise ValueError(f"{id!r} is the id of a job, and not of a flow")
        return FlowHandle(self._client, Handle(self._client, raw))

    def list(
        self,
        *,
        state: State | str | None = None,
        name: str | None = None,
        key: str | None = None,
        limit: int = 100,
    ) -> "list[FlowHandle[Any]]":
        """Up to `limit` flows, the newest first. state: "running" (not ended), "done", "dead" or "cancelled"."""
        wanted = None if state is None else State(state)
        phases = () if wanted is None else _PHASES.get(wanted, (Phase.ENDED,))
        found: list[FlowHandle[Any]] = []
        before = b""
        while len(found) < limit:
            page = self._client.store.flows.find(FlowQuery(phases, name, key, before=before, limit=_AT_ONCE))
            right = (row for row in page if wanted in (None, State.RUNNING, row.ends))
            found += [FlowHandle(self._client, Handle(self._client, row.id)) for row in right]
            if len(page) < _AT_ONCE:
                break
            before = page[-1].id
        return found[:limit]
