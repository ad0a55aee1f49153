"""Which of several stores has a job: the one where it belongs, or the one where it was seen."""

from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2b
from itertools import islice

from tarry.model.flow.node_ids import is_node
from tarry.model.job import Job

# Far more jobs than a process has in hand at a time.
REMEMBERED = 200_000
"""The most jobs whose shard a process remembers."""


class RendezvousHash:
    """Which of several places a name belongs to. A new place takes only its own part from the others. Places have
    numbers, but only their names count."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._hashes: dict[int, blake2b] = {}
        self.use(names)

    def use(self, names: Mapping[int, str]) -> None:
        """From now on these are the places."""
        # Hashed once here and copied for each id. The zero byte keeps name and id apart. First the hashes, which the
        # numbers need; one that is not a place any more may be asked for a moment longer.
        hashes = {number: blake2b(name.encode() + b"\0", digest_size=8) for number, name in names.items()}
        self._hashes = {**self._hashes, **hashes}
        self.numbers = tuple(names)

    def place(self, name: bytes) -> int:
        """The number of the place where this belongs: the place whose hash with the name is the highest."""
        if len(self.numbers) == 1:
            return self.numbers[0]
        return max(self.numbers, key=lambda number: self._weight(number, name))

    def place_of_job(self, id: bytes) -> int:
        """The number of the place where the job with this id belongs. All nodes of a flow belong to one place."""
        # Not in `place`: names and digests may look like ids of nodes, and must stay where they are.
        return self.place(_name_of_job(id))

    def has_job_in(self, numbers: Collection[int], id: bytes) -> bool:
        """Whether the job with this id belongs to one of these places; quicker than `place_of_job` where it mostly does
        not."""
        name = _name_of_job(id)
        most = max(self._weight(number, name) for number in numbers)
        # The first one that is higher decides; ids are drawn until none is.
        return all(number in numbers or self._weight(number, name) < most for number in self.numbers)

    def order(self, name: bytes) -> list[int]:
        """All places: first the one where it belongs, then the one where it would belong without the first, and on."""
        return sorted(self.numbers, key=lambda number: self._weight(number, name), reverse=True)

    def _weight(self, number: int, name: bytes) -> bytes:
        digest = self._hashes[number].copy()
        digest.update(name)
        return digest.digest()


def _name_of_job(id: bytes) -> bytes:
    return id[:12] if is_node(id) else id


class LocatedJobs:
    """Remembers on which shard jobs were seen. home: the shard that an id says."""

    def __init__(self, home: Callable[[bytes], int]) -> None:
        self._home = home
        self._seen: dict[bytes, int] = {}

    def group(self, ids: Iterable[bytes]) -> dict[int, list[int]]:
        """The positions of the ids, by the shard where each job is, as far as is known."""
        # What was seen comes first: a job that was moved, or put on the shard of its key, is not where its id says.
        places: dict[int, list[int]] = {}
        seen = self._seen
        for position, id in enumerate(ids):
            number = seen.get(id)
            places.setdefault(self._home(id) if number is None else number, []).append(position)
        return places

    def note(self, number: int, jobs: Iterable[Job]) -> None:
        """Notes that these jobs were seen on that shard."""
        seen = self._seen
        seen.update(dict.fromkeys([job.id for job in jobs], number))
        if len(seen) > REMEMBERED:
            # The older half goes at once, so that this is rare. `pop` with a default: other threads forget jobs, too.
            for id in list(islice(seen, REMEMBERED // 2)):
                seen.pop(id, None)

    def note_place(self, id: bytes, number: int) -> None:
        """Notes that what is kept for this id is on that shard."""
        self._seen[id] = number

    def forget(self, id: bytes) -> int | None:
        """Forgets where it was seen, and answers that; None: nowhere."""
        return self._seen.pop(id, None)

    def forget_place(self, number: int) -> None:
        """Forgets all that was seen on that shard, which is gone."""
        for id in [id for id, place in list(self._seen.items()) if place == number]:
            self._seen.pop(id, None)
