"""`app.flows`: the flows in the store."""

from typing import TYPE_CHECKING, Any

from tarry.client.flows.flow_handle import FlowHandle
from tarry.client.flows.searching import FlowSearch, search_flows
from tarry.client.handle import Handle
from tarry.model.flow.node_ids import is_root
from tarry.model.job import State
from tarry.store.rules import ids

if TYPE_CHECKING:
    from tarry.client.client import Client


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
        found: list[FlowHandle[Any]] = []
        before: bytes | None = b""
        while before is not None and len(found) < limit:
            search = FlowSearch(wanted, name, key, limit - len(found), before)
            page = search_flows(self._client.store, search)
            found += [FlowHandle(self._client, Handle(self._client, row.id)) for row in page.rows]
            before = page.next
        return found
