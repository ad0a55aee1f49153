"""Finds flows for people, page by page."""

from collections.abc import Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from tarry.errors import PartlyUnavailable
from tarry.model.flow_row import FlowRow, Phase
from tarry.model.job import State
from tarry.store.rules.base import Store
from tarry.store.rules.flows import FlowQuery
from tarry.store.rules.partial_result import partial_result

UNFINISHED = (Phase.STORING, Phase.RUNNING, Phase.CANCELLING, Phase.UNDOING)
FLOW_STATES = (State.RUNNING, State.DONE, State.DEAD, State.CANCELLED)
"""The states of a flow: until it has ended it is running."""
_PHASES: Mapping[State | None, tuple[Phase, ...]] = {None: (), State.RUNNING: UNFINISHED}
MOST_EXAMINED = 5000
"""How many flows one search looks at; the next one goes on from there."""
_AT_ONCE = 500


class FlowSearch(Struct, frozen=True):
    """Which flows somebody wants to see; a field left out matches all."""

    state: State | None = None
    """One of FLOW_STATES."""
    name: str | None = None
    key: str | None = None
    limit: int = 100
    before: bytes = b""
    """Only flows with a smaller id; empty: from the newest."""
    queues: tuple[str, ...] = ()
    """Only those whose root is in a queue that fits one of these patterns; empty: in any."""


class FoundFlows(Struct, frozen=True):
    """Flows with their roots, the newest first."""

    rows: list[FlowRow]
    next: bytes | None
    """Where another search goes on (`FlowSearch.before`); None: there are no more."""


def state_of(row: FlowRow) -> State:
    """The state of a flow, one of FLOW_STATES."""
    return row.ends if row.phase is Phase.ENDED else State.RUNNING


def search_flows(store: Store, search: FlowSearch) -> FoundFlows:
    """One page of flows; of MOST_EXAMINED at most, so that it may have few of them and a `next`. PartlyUnavailable: its
    answer is without those of a shard that is away."""
    away: list[PartlyUnavailable] = []
    found = _search(store, search, away)
    if away:
        raise PartlyUnavailable(str(away[0]), found, away[0].missing)
    return found


def _search(store: Store, search: FlowSearch, away: list[PartlyUnavailable]) -> FoundFlows:
    phases = _PHASES.get(search.state, (Phase.ENDED,))
    found: list[FlowRow] = []
    before = search.before
    # How an ended flow ended is no part of a query of the store.
    limit = min(_AT_ONCE, search.limit + 1) if search.state in _PHASES else _AT_ONCE
    for _ in range(-(-MOST_EXAMINED // limit)):
        query = FlowQuery(phases, search.name, search.key, before=before, limit=limit, queues=search.queues)
        page, error = partial_result(partial(store.flows.find, query))
        away += [] if error is None else [error]
        found += [row for row in page if row.root is not None and search.state in (None, state_of(row))]
        if len(found) > search.limit:
            return FoundFlows(found[: search.limit], found[search.limit - 1].id)
        if len(page) < limit:
            return FoundFlows(found, None)
        before = page[-1].id
    return FoundFlows(found, before)


def fetch_flow(store: Store, id: bytes) -> FlowRow | None:
    """The row of a flow with its root; None: there is none."""
    row, (root,) = store.flows.get(id), store.get([id])
    return None if row is None or root is None else replace(row, root=root)
