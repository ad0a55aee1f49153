"""What an office saw in the store, so that it need only mind what has changed since: there may be thousands of
endpoints, of which few are in use."""

from collections.abc import Mapping, Set

from msgspec import Struct

from tarry.keeper.limits import BY_HAND
from tarry.model.limit import Limit
from tarry.push.endpoint.settings import Endpoint


class StoreSnapshot(Struct):
    """At one moment."""

    endpoints: Mapping[str, Endpoint]
    cells: Mapping[str, bytes]
    """How it goes at them, as the store has it."""
    limits: dict[str, Limit]
    by_hand: Set[str]
    """Limits that somebody has set by hand."""
    most: int
    """For how many at once there is room here."""

    def changed_since(self, last: "StoreSnapshot | None") -> set[str]:
        """Of which endpoints anything is other than at the last look."""
        if last is None or last.most != self.most:
            return set(self.endpoints)
        names = {name for name, endpoint in self.endpoints.items() if last.endpoints.get(name) is not endpoint}
        names |= {name for name, _ in self.cells.items() ^ last.cells.items()}
        names |= {_task_of(name) for name, _ in self.limits.items() ^ last.limits.items()}
        return names | {_task_of(name) for name in self.by_hand ^ last.by_hand}


def _task_of(limit: str) -> str:
    """The task that a limit is of."""
    return limit.removeprefix(BY_HAND).partition(":")[2]
