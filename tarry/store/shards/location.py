"""Which of several stores has a job: the one where it belongs, or the one where it was seen; and ids for new jobs that
belong on a certain one."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2b
from itertools import islice

from tarry.model.flow.node_ids import is_node
from tarry.model.job import Job
from tarry.platform import at_fork
from tarry.store.rules.ids import uuid7

# Far more jobs than a process has in hand at a time.
REMEMBERED = 200_000
"""The most jobs whose shard a process remembers."""
MOST_KEYS = MOST_NEW = 10_000
"""The most keys whose place is remembered, and the most ids, until their jobs are stored."""
KEPT_FOR = 0.001
"""Seconds for which an id waits for its job. Ids tell in which order jobs were made, also in other processes, to the
millisecond."""

# An RLock: a signal handler that enqueues may interrupt a draw.
_lock = threading.RLock()
_forks = 0


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
        self._copies = tuple((number, hash.copy) for number, hash in hashes.items())
        self.numbers = tuple(names)
        self._keys: dict[str, int] = {}

    def place(self, name: bytes) -> int:
        """The number of the place where this belongs: the place whose hash with the name is the highest."""
        if len(self.numbers) == 1:
            return self.numbers[0]
        # Each enqueue comes here: a loop takes two thirds of what `max` does.
        highest, place = b"", self.numbers[0]
        for number, copy in self._copies:
            digest = copy()
            digest.update(name)
            weight = digest.digest()
            if weight > highest:
                highest, place = weight, number
        return place

    def place_of_key(self, key: str) -> int:
        """The number of the place where the jobs of this key belong."""
        # Read first: what was found for the places of before must not be remembered for others.
        keys = self._keys
        number = keys.get(key)
        if number is None:
            if len(keys) >= MOST_KEYS:
                keys.clear()
            number = keys[key] = self.place(blake2b(key.encode(), digest_size=16).digest())
        return number

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


class NewIds:
    """Gives each store ids that grow, in the order in which they are asked for. One that is drawn for another store is
    kept for the next job there, so that each draw gives an id. Safe to use from several threads, and after a fork."""

    def __init__(self, hashing: RendezvousHash) -> None:
        self._hashing = hashing
        self._drawn_for: tuple[object, int] = (None, 0)
        """The places for which ids were drawn, and in which process."""
        self._kept: dict[int, deque[bytes]] = {}
        self._kept_until = 0.0
        self._places: dict[bytes, int] = {}
        """Where ids belong whose jobs are not stored yet."""

    def draw(self) -> tuple[bytes, int]:
        """An id, and the number of the store where it belongs."""
        with _lock:
            self._begin()
            # It is greater than those that are kept, and may belong where one of them does.
            self._kept.clear()
            id = uuid7()
            place = self._places[id] = self._hashing.place(id)
            return id, place

    def draw_for(self, place: int) -> bytes:
        """An id that belongs on the store of this number."""
        with _lock:
            self._begin()
            id = self._take(place)
            self._places[id] = place
            return id

    def place_of(self, id: bytes) -> int:
        """Where the job with this id belongs. Quick, and once, for one that was drawn here."""
        place = self._places.pop(id, None)
        is_known = place is not None and self._drawn_for[0] is self._hashing.numbers
        return place if is_known and place is not None else self._hashing.place_of_job(id)

    def _begin(self) -> None:
        # Of other places nothing is known; and a forked child must not give out what its parent keeps.
        now, numbers = time.monotonic(), self._hashing.numbers
        is_other = self._drawn_for[0] is not numbers or self._drawn_for[1] != _forks
        if is_other or now >= self._kept_until:
            self._kept.clear()
            self._kept_until = now + KEPT_FOR
        if is_other or len(self._places) >= MOST_NEW:
            self._places.clear()
            self._drawn_for = numbers, _forks

    def _take(self, place: int) -> bytes:
        if kept := self._kept.get(place):
            return kept.popleft()
        # It may stop being one of the stores meanwhile; then any id will do.
        while (home := self._hashing.place(id := uuid7())) != place and place in self._hashing.numbers:
            self._kept.setdefault(home, deque()).append(id)
        return id


def _after_fork() -> None:
    """Starts anew in a forked child."""
    # A thread of the parent, which the child does not have, may hold the lock.
    global _lock, _forks
    _lock, _forks = threading.RLock(), _forks + 1


at_fork(after_in_child=_after_fork)
