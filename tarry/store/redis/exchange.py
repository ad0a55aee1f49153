"""The arguments and the answer of the script `exchange`."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct as Form

from msgspec import Struct

from tarry.model.change import Change
from tarry.model.job import Job
from tarry.store.redis.changes import PackedChanges, pack_changes
from tarry.store.redis.link.base import Word
from tarry.store.redis.reading import parse_claimed
from tarry.store.redis.record import BANDS
from tarry.store.rules.base import Want

NO_CHANGES = pack_changes(())


class ClaimRequest(Struct, frozen=True):
    """The owner that claims, and when. lease: microseconds. now: empty: when the script runs."""

    owner: str
    lease: int
    now: int | str

    def arguments(self, changes: PackedChanges, wants: Sequence[Want], limit: int, promote: bool = True) -> list[Word]:
        """The arguments of the script."""
        plan = _pack_wants(tuple([(want.queue, want.band) for want in wants]))
        # No claim takes more than `limit` of a want, and that fits into four bytes.
        counts = Form(f">{len(wants)}I").pack(*[max(0, min(want.count, limit)) for want in wants])
        who: list[Word] = [self.now, self.owner, self.lease, max(limit, 0), int(promote), plan, counts]
        # The ids come last, once the effects are taken off: the script finds their number by where the arguments end.
        made = (*changes.descriptions, changes.numbers, changes.record, *changes.ids)
        return [*who, len(changes.descriptions), *made, *changes.effects]

    def jobs(self, flat: Sequence[bytes], now: bytes) -> list[Job]:
        """What was claimed. now: when, as the script answered."""
        return parse_claimed(flat, self.owner, int(now))


# Workers claim the same queues again and again.
@lru_cache(maxsize=100)
def _pack_wants(wants: Sequence[tuple[str, int]]) -> bytes:
    names = ((BANDS[band].encode(), queue.encode()) for queue, band in wants)
    return b"".join([letter + len(name).to_bytes(2, "big") + name for letter, name in names])


def parse_validity(changes: Sequence[Change], answers: Iterable[tuple[PackedChanges, bytes]]) -> list[bool]:
    """For each change whether it was made, from texts of 1 and 0."""
    if not changes:
        return []
    valid: dict[bytes, list[bool]] = {}
    for part, text in answers:
        for id, digit in zip(part.ids, text, strict=True):
            valid.setdefault(id, []).append(digit == ord("1"))
    # The usual case: one change for each job.
    if len(valid) == len(changes):
        return [valid[change.id][0] for change in changes]
    # Changes of one job are in successive answers, in their order (`split_rounds`).
    turns = {id: iter(answer) for id, answer in valid.items()}
    return [next(turns[change.id]) for change in changes]


def earliest(due: bytes, again: bytes) -> int | None:
    """The earlier of the script's two times, each of which may be missing."""
    times = [int.from_bytes(due, "big")] if due else []
    return min([*times, int(again)] if again else times, default=None)
