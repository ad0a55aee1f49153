"""What the coordinator read from the store. It compares two snapshots and handles only what changed.

There may be thousands of endpoints, of which few are in use.
"""

from collections.abc import Mapping, Set

from msgspec import Struct

from tarry.keeper.limits import BY_HAND
from tarry.model.limit import Limit
from tarry.push.endpoint.settings import Endpoint


class StoreSnapshot(Struct):
    """The store at one moment."""

    endpoints: Mapping[str, Endpoint]
    cells: Mapping[str, bytes]
    """The flow states, as stored."""
    limits: dict[str, Limit]
    by_hand: Set[str]
    """Names of limits that somebody has set by hand."""
    most: int
    """How many requests one endpoint may have at once here."""

    def changed_since(self, last: "StoreSnapshot | None") -> set[str]:
        """Names of endpoints that differ from the last snapshot in anything."""
        # The bound applies to every endpoint.
        if last is None or last.most != self.most:
            return set(self.endpoints)
        # The catalog keeps the object of an unchanged endpoint, so no settings are compared.
        names = {name for name, endpoint in self.endpoints.items() if last.endpoints.get(name) is not endpoint}
        names |= {name for name, _ in self.cells.items() ^ last.cells.items()}
        names |= {_task_of(name) for name, _ in self.limits.items() ^ last.limits.items()}
        return names | {_task_of(name) for name in self.by_hand ^ last.by_hand}


def _task_of(limit: str) -> str:
    """The name of the task that a limit belongs to."""
    return limit.removeprefix(BY_HAND).partition(":")[2]
