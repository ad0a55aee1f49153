"""Which new jobs there is room for, in queues with a bound (`model.bound`).

A store keeps for each such queue how much room is left, in a cell that it changes in the transaction of the insert. So
no insert counts jobs, except where the room is used up or the last count is old; and no other verb knows of bounds.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from tarry.errors import QueueFull
from tarry.model.bound import ROOM, Bound, Room
from tarry.model.checks.decoders import json_decoder
from tarry.model.job import Job

_decode = json_decoder(Room).decode
_SECOND = 1_000_000


class RoomTable(Protocol):
    """The rooms of a store, within one of its transactions."""

    def lock(self, name: str) -> bytes | None:
        """The value of a cell, which no other transaction reads so until this one ends; empty or None: none yet."""

    def save(self, name: str, value: bytes) -> None:
        """Sets the value of a cell that is locked."""

    def count(self, queue: str, most: int) -> int:
        """How many jobs of a queue are ready or scheduled; at most `most`."""


def admit(
    rooms: RoomTable, jobs: Sequence[Job], bounds: Mapping[str, Bound], now: int, freed: Collection[str]
) -> dict[int, QueueFull]:
    """Takes room for jobs; returns the positions of those for which there is none, each with its error.

    freed: the queues of which this caller has just deleted jobs: their jobs are counted anew.
    """
    refused: dict[int, QueueFull] = {}
    # In the order of names, so that two transactions never wait for each other in a circle.
    for queue in sorted({job.queue for job in jobs} & bounds.keys()):
        if not bounds[queue].most:
            continue
        places = [at for at, job in enumerate(jobs) if job.queue == queue]
        room = _room(rooms, queue, bounds[queue], len(places), now, queue in freed)
        count = min(len(places), max(0, room.left))
        rooms.save(ROOM + queue, msgspec.json.encode(room.taken(count)))
        wait = max(1.0, (room.countable_at() - now) / _SECOND)
        refused |= {at: QueueFull(queue, bounds[queue].most, wait) for at in places[count:]}
    return refused


def admit_all(rooms: RoomTable, jobs: Sequence[Job], bounds: Mapping[str, Bound], now: int) -> None:
    """Takes room for all of the jobs; QueueFull if there is none for one of them: then the caller rolls back."""
    for error in admit(rooms, jobs, bounds, now, ()).values():
        raise error


def _room(rooms: RoomTable, queue: str, bound: Bound, wanted: int, now: int, freed: bool) -> Room:
    """The room before these jobs, counted anew if that may help."""
    stored = rooms.lock(ROOM + queue)
    room = _decode(stored) if stored and not freed else None
    if room is not None and room.is_true(bound, now) and (wanted <= room.left or now < room.countable_at()):
        return room
    began = time.perf_counter()
    waiting = rooms.count(queue, bound.most)
    cost = round((time.perf_counter() - began) * _SECOND)
    return Room(bound.most, bound.most - waiting, now, cost)
