"""One turn of a worker with several stores."""

from collections.abc import Sequence

from msgspec import Struct

from tarry.model.change import Change
from tarry.model.job import Job
from tarry.store.base import Want


class Turn(Struct):
    """What was asked of all, and what came of it so far. places: which changes are whose, by their positions."""

    changes: Sequence[Change]
    places: dict[int, list[int]]
    wants: Sequence[Want]
    limit: int
    owner: str
    lease: int
    now: int
    jobs: list[Job] = []
    more: list[int] = []
    """Shards that gave all that they were asked for."""
    unheard: bool = False

    @property
    def room(self) -> int:
        """How many more jobs may come."""
        return max(self.limit - len(self.jobs), 0)
