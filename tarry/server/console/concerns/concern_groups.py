"""Equal concerns as one line, which opens to the list; without those that the reader has put off."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby

from msgspec import Struct

from tarry.server.console.concerns.concerns import RED, Concern
from tarry.server.console.put_off import PutOffUntil, written_mark

MOST_SHOWN = 50
"""Concerns of a line that it opens to."""
_PLACES = {
    "error": "/errors?new_since=deploy",
    "dead": "/jobs?state=dead",
    "flow": "/flows?state=dead",
    "endpoint": "/endpoints",
    "schedule": "/schedules",
}
_QUEUES = ("unserved", "paused", "late", "full")
_NO_COUNT = ("late", "lost", "away", "slow", "stopped", "schedule", "advice")
"""Kinds whose `count` is no number of jobs or flows."""


class ConcernGroup(Struct, frozen=True):
    """All concerns of a kind, the worst first."""

    kind: str
    members: Sequence[Concern]

    @property
    def is_red(self) -> bool:
        """Whether something is broken or lost."""
        return self.kind in RED

    @property
    def total(self) -> int:
        """How many jobs or flows they are about; of kinds that count none, 0."""
        return 0 if self.kind in _NO_COUNT else int(sum(one.count for one in self.members))

    @property
    def where(self) -> str:
        """The page with the way out."""
        if len(self.members) == 1 or self.kind not in (*_PLACES, *_QUEUES):
            return self.members[0].where
        return _PLACES.get(self.kind, "/queues")

    @property
    def name(self) -> str:
        """Tells it from others: another one, if another queue, host or store is concerned."""
        names = "\0".join([self.kind, *sorted(one.name for one in self.members)])
        return blake2b(names.encode("utf-8", "replace"), digest_size=6).hexdigest()

    @property
    def level(self) -> int:
        """Digits of the total: so what grows tenfold comes back."""
        return len(str(self.total))

    @property
    def mark(self) -> str:
        """What puts it off."""
        return written_mark(self.name, self.level)

    def is_put_off(self, until: Mapping[str, PutOffUntil]) -> bool:
        """Whether the reader has put off just this, and it is no worse since."""
        found = until.get(self.name)
        return found is not None and self.level <= found.level


def group_concerns(concerns: Iterable[Concern]) -> list[ConcernGroup]:
    """One group for each kind. concerns: the worst first."""
    return [ConcernGroup(kind, list(members)) for kind, members in groupby(concerns, key=lambda one: one.kind)]
