"""Which new jobs there is room for, in queues with a bound (`model.bound`), and of keys that have one.

A store keeps for each how much room is left, in a cell that it changes in the transaction of the insert. So no insert
counts jobs, except where the room is used up or the last count is old; and no other verb knows of bounds.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from tarry.errors import QueueFull
from tarry.model.bound import Bound, KeyBounds
from tarry.model.job import Job
from tarry.store.shared.bounded_room import BoundedRoom, RoomTable, room_of_key, room_of_queue

NO_KEYS: KeyBounds = {}


class Admission:
    """Takes room for new jobs, in a transaction.

    freed: the queues of which this caller has just deleted jobs: their jobs are counted anew. refused: the positions of
    the jobs for which there is no room, each with its error.
    """

    def __init__(
        self,
        rooms: RoomTable,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound],
        now: int,
        freed: Collection[str] = (),
        key_bounds: KeyBounds = NO_KEYS,
    ) -> None:
        self._table, self._jobs = rooms, jobs
        self._bounds, self._key_bounds, self._freed = bounds, key_bounds, freed
        self._rooms: dict[tuple[str, ...], BoundedRoom] = {}
        self._of_job = [self._rooms_of(job) for job in jobs]
        self._open(now)
        if any(room.room.left < room.wanted for room in self._rooms.values()):
            self._leave_out_stored()
        self.refused = {at: error for at, rooms in enumerate(self._of_job) if (error := _take(rooms, now)) is not None}

    def require_all(self) -> None:
        """QueueFull if there is no room for one of the jobs: then the caller rolls back."""
        for error in self.refused.values():
            raise error

    def insert(self, insert: Callable[[Sequence[Job]], Sequence[bytes]]) -> list[bytes | QueueFull]:
        """Inserts the jobs for which there is room; the answers of `Store.insert_bounded`. insert: as `Store.insert`,
        in the same transaction."""
        admitted = [job for at, job in enumerate(self._jobs) if at not in self.refused]
        ids = iter(insert(admitted) if admitted else ())
        answers = [self.refused.get(at) or next(ids) for at in range(len(self._jobs))]
        for job, answer, rooms in zip(self._jobs, answers, self._of_job, strict=True):
            # Another job holds its key, so that it waits for nothing.
            if isinstance(answer, bytes) and answer != job.id:
                _change(rooms, -1)
        self.save()
        return answers

    def save(self) -> None:
        """Writes the rooms that have changed."""
        for room in self._rooms.values():
            room.save(self._table)

    def _rooms_of(self, job: Job) -> list[BoundedRoom]:
        """Where a job needs room; its key first, so that no other job makes room for one that its key refuses."""
        rooms, is_freed = [], job.queue in self._freed
        most = None if job.lane is None else self._key_bounds.get((job.task, job.lane))
        if most is not None:
            key = job.queue, job.task, job.lane or ""
            rooms.append(self._rooms.get(key) or room_of_key(self._table, job, most, is_freed))
            self._rooms[key] = rooms[-1]
        bound = self._bounds.get(job.queue)
        if bound is not None and bound.most:
            queue = (job.queue,)
            rooms.append(self._rooms.get(queue) or room_of_queue(self._table, job.queue, bound.most, is_freed))
            self._rooms[queue] = rooms[-1]
        for room in rooms:
            room.wanted += 1
        return rooms

    def _open(self, now: int) -> None:
        # In the order of names, so that two transactions never wait for each other in a circle; and all before the
        # first count, which must see what the others have committed that it had to wait for.
        for room in sorted(self._rooms.values(), key=lambda room: room.cell):
            room.stored = self._table.lock(room.cell)
        for room in self._rooms.values():
            room.open(now)

    def _leave_out_stored(self) -> None:
        # Jobs that are sent again need no room. Only looked at where room is short, since mostly all are new.
        stored = frozenset(self._table.find_stored([job.id for job in self._jobs]))
        self._of_job = [[] if job.id in stored else of for job, of in zip(self._jobs, self._of_job, strict=True)]


def admit_all(
    rooms: RoomTable, jobs: Sequence[Job], bounds: Mapping[str, Bound], now: int, key_bounds: KeyBounds = NO_KEYS
) -> None:
    """Takes room for all of the jobs; QueueFull if there is none for one of them: then the caller rolls back."""
    admission = Admission(rooms, jobs, bounds, now, (), key_bounds)
    admission.require_all()
    admission.save()


def _take(rooms: Sequence[BoundedRoom], now: int) -> QueueFull | None:
    for room in rooms:
        if room.room.left <= 0:
            return room.refusal(now)
    _change(rooms, 1)
    return None


def _change(rooms: Sequence[BoundedRoom], count: int) -> None:
    for room in rooms:
        room.room = room.room.taken(count)
