"""The room of a queue or key with a bound (`model.bound`), as a transaction that inserts jobs uses it."""

import hashlib
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from tarry.errors import QueueFull, TenantFull
from tarry.model.bound import KEY_ROOM, ROOM, Room
from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.unreadable import UNREADABLE
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

    def count_key(self, queue: str, task: str, lane: str, most: int) -> int:
        """How many jobs of a lane are ready in a queue; at most `most`."""

    def find_stored(self, ids: Sequence[bytes]) -> Collection[bytes]:
        """Those of these ids under which a job is there."""


class BoundedRoom(Struct):
    """The room of a queue, or of a key of a task in one queue.

    count: counts its jobs. full: makes the error, of the seconds after which there may be room.
    """

    cell: str
    most: int
    is_freed: bool
    """This caller has just deleted some of its jobs: they are counted anew."""
    count: Callable[[], int]
    full: Callable[[float], QueueFull]
    wanted: int = 0
    """How many jobs of the call need it."""
    stored: bytes | None = None
    room: Room = Room(0, 0, 0, 0)

    def open(self, now: int) -> None:
        """The room before these jobs, counted anew if that may help."""
        room = _decode(self.stored) if self.stored and not self.is_freed else None
        if room is None or not room.is_true(self.most, now) or (self.wanted > room.left and now >= room.countable_at()):
            began = time.perf_counter()
            waiting = self.count()
            cost = round((time.perf_counter() - began) * _SECOND)
            room = Room(self.most, self.most - waiting, now, cost)
        self.room = room

    def refusal(self, now: int) -> QueueFull:
        """The error of a job for which there is no room."""
        return self.full(max(1.0, (self.room.countable_at() - now) / _SECOND))

    def save(self, rooms: RoomTable) -> None:
        """Writes it if it has changed."""
        value = msgspec.json.encode(self.room)
        if value != self.stored:
            rooms.save(self.cell, value)


def room_of_queue(rooms: RoomTable, queue: str, most: int, is_freed: bool) -> BoundedRoom:
    """The room of a queue that takes at most so many jobs, not read yet."""
    return BoundedRoom(
        ROOM + queue, most, is_freed, lambda: rooms.count(queue, most), lambda wait: QueueFull(queue, most, wait)
    )


def room_of_key(rooms: RoomTable, job: Job, most: int, is_freed: bool) -> BoundedRoom:
    """The room of the key of a job, which has a lane, in the queue of the job, not read yet."""
    queue, task, lane = job.queue, job.task, job.lane or ""

    def full(wait: float) -> QueueFull:
        return TenantFull(queue, most, wait, task=task, tenant=lane)

    # A digest, since a store bounds the length of a cell's name.
    digest = hashlib.blake2b(msgspec.json.encode((queue, task, lane)), digest_size=16).hexdigest()
    return BoundedRoom(KEY_ROOM + digest, most, is_freed, lambda: rooms.count_key(queue, task, lane, most), full)


def is_old_room(value: bytes, now: int) -> bool:
    """Whether the room of a key in this cell is so old that the cell may go; also if it is no room."""
    try:
        return bool(value) and _decode(value).is_old(now)
    except UNREADABLE:
        return True
