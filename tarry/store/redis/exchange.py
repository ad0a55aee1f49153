"""What the script `exchange` is told, and what it answers."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from tarry.model.change import Change
from tarry.model.job import Job
from tarry.store.base import Want
from tarry.store.redis.changes import Packed, packed
from tarry.store.redis.link import Word
from tarry.store.redis.reading import claimed
from tarry.store.redis.record import BANDS

NO_CHANGES = packed(())


class Claim(Struct, frozen=True):
    """Who claims, and when. lease: microseconds."""

    owner: str
    lease: int
    now: int

    def words(self, changes: Packed, wants: Sequence[Want], limit: int, promote: bool = True) -> list[Word]:
        """The arguments of the script."""
        named: list[Word] = []
        for want in wants:
            named += (want.queue, BANDS[want.band], want.count)
        who: list[Word] = [self.now, self.owner, self.lease, max(limit, 0), int(promote), len(wants), *named]
        return [*who, len(changes.descriptions), *changes.descriptions, changes.numbers, *changes.ids]

    def jobs(self, flat: Sequence[bytes]) -> list[Job]:
        """What was claimed."""
        return claimed(flat, self.owner, self.now)


def made(changes: Sequence[Change], answers: Iterable[tuple[Packed, bytes]]) -> list[bool]:
    """For each change whether it was made. Those of one job are in answers that come one after the other."""
    if not changes:
        return []
    told: dict[bytes, list[bool]] = {}
    for part, text in answers:
        for id, digit in zip(part.ids, text, strict=True):
            told.setdefault(id, []).append(digit == ord("1"))
    if len(told) == len(changes):
        return [told[change.id][0] for change in changes]
    turns = {id: iter(answer) for id, answer in told.items()}
    return [next(turns[change.id]) for change in changes]


def earliest(due: bytes, again: bytes) -> int | None:
    """The script's two times, each of which may be missing."""
    times = [int.from_bytes(due, "big")] if due else []
    return min([*times, int(again)] if again else times, default=None)
