"""The schedules that are kept in a store, as named values: each by its name, and an entry of it by when it is due.

The entry is written before the schedule that it is of, and goes after it. So a schedule is always found when it is due,
whatever breaks off in between, and an entry of no schedule is rubbish. Each is of one writing of a schedule: who tidies
up late must not take the entry of a later one for the same time.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.errors import PartlyUnavailable, StoreBusy
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.schedules import stored as rules
from tarry.model.schedules.stored import StoredSchedule
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import partial_result, reachable_part

PREFIX, _DUE = "schedule:", "schedule-due:"
MARK = "schedule-missed:"
"""Of a schedule that is not paused and whose newest tick made no job: see `missed_schedules`."""
_TRIES = 20
_ENTRY = re.compile(_DUE + r"([0-9a-f]{16}):([0-9a-f]{8}):(.*)", re.DOTALL)
_MOST_READ = 1000
"""Values that are read at once, where others have written what is no entry."""

ScheduleChange = Callable[[StoredSchedule | None], StoredSchedule | None]


class Values(Protocol):
    """A store, or what it has within a transaction."""

    def kv_get(self, name: str) -> bytes | None:
        """As of a store."""

    def kv_cas(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        """As of a store."""


class DueEntry(Struct, frozen=True):
    """A schedule that a keeper is to look at. at: microseconds since the epoch. mark: of the value of the schedule."""

    at: int
    mark: str
    name: str
    value: bytes = b""
    """Others may write something there."""

    @property
    def cell(self) -> str:
        """The name of the value."""
        return f"{_DUE}{self.at:016x}:{self.mark}:{self.name}"


class SeenSchedule(Struct, frozen=True):
    """A schedule, as it was read."""

    name: str
    entry: DueEntry | None
    """None: it is not looked at."""
    cell: bytes
    schedule: StoredSchedule


class SeenPage(Struct, frozen=True):
    """Schedules, by name."""

    schedules: list[SeenSchedule]
    last: str
    """The name behind which the next page begins; empty: this was the last one."""
    is_whole: bool
    """Whether all shards were there."""


def entry_of(name: str, one: StoredSchedule, cell: bytes) -> DueEntry | None:
    """The entry of a schedule that is stored as this value; None: it is not looked at."""
    return DueEntry(one.look, blake2b(cell, digest_size=4).hexdigest(), name) if one.look else None


def is_of(entry: DueEntry, one: StoredSchedule, cell: bytes) -> bool:
    """Whether the entry is that of this schedule, which is stored as this value."""
    found = entry_of(entry.name, one, cell)
    return found is not None and found.cell == entry.cell


def decode(store: Store, name: str, cell: bytes) -> StoredSchedule | None:
    """The schedule; its arguments stay sealed if they cannot be opened here. None: another program has written
    something else."""
    try:
        found = decode_json(cell, StoredSchedule)
    except UNREADABLE:
        return None
    return _with_body(found, store.open_value(PREFIX + name, found.definition.body))


def encode(store: Store, name: str, one: StoredSchedule) -> bytes:
    """The value of a schedule."""
    definition = one.definition
    return msgspec.json.encode(_with_body(one, store.seal_value(PREFIX + name, definition.body, definition.task)))


def _with_body(one: StoredSchedule, body: bytes) -> StoredSchedule:
    return one if body is one.definition.body else replace(one, definition=replace(one.definition, body=body))


def get(store: Store, name: str) -> StoredSchedule | None:
    """The schedule of that name; None: there is none."""
    cell = _read(store, name)
    return None if cell is None else decode(store, name, cell)


def _read(values: Values, name: str) -> bytes | None:
    cell, away = partial_result(lambda: values.kv_get(PREFIX + name))
    if cell is None and away is not None:
        raise away
    return cell


def page(store: Store, prefix: str, after: str, limit: int) -> dict[str, StoredSchedule]:
    """The first schedules behind the name `after`, by name, whose names begin so."""
    found: dict[str, StoredSchedule] = {}
    # What another program has written there does not count.
    while limit > len(found):
        cells = reachable_part(lambda: store.kv_page(PREFIX + prefix, PREFIX + after, limit - len(found)))  # noqa: B023
        named = {name.removeprefix(PREFIX): cell for name, cell in cells.items()}
        found |= {name: one for name, cell in named.items() if (one := decode(store, name, cell)) is not None}
        if not cells:
            break
        after = max(named)
    return found


def loses_mark(old: StoredSchedule, new: StoredSchedule | None) -> bool:
    """Whether the schedule had a mark, and has none any more."""
    return rules.is_missed(old) and (new is None or not rules.is_missed(new))


def seen_page(store: Store, after: str, limit: int) -> SeenPage:
    """The first schedules behind the name `after`; StoreError if none can be reached."""
    cells, away = partial_result(lambda: store.kv_page(PREFIX, PREFIX + after, limit))
    named = {name.removeprefix(PREFIX): cell for name, cell in cells.items()}
    seen = [
        SeenSchedule(name, entry_of(name, one, cell), cell, one)
        for name, cell in named.items()
        if (one := decode(store, name, cell)) is not None
    ]
    return SeenPage(seen, max(named, default=""), away is None)


def change(store: Store, name: str, change: ScheduleChange, within: Values | None = None) -> StoredSchedule | None:
    """Makes of the schedule what `change` makes of it, which may be called several times; returns that. None: there is
    none. within: a transaction in which it is done. StoreBusy if others change it all the time."""
    values: Values = within or store
    for _ in range(_TRIES):
        cell = _read(values, name)
        old = None if cell is None else decode(store, name, cell)
        new = change(old)
        if new == old and (new is not None or cell is None):
            return new
        value = None if new is None else encode(store, name, new)
        entry = None if new is None or value is None else entry_of(name, new, value)
        if entry is not None:
            values.kv_cas(entry.cell, b"", None)
        if new is not None and rules.is_missed(new):
            values.kv_cas(MARK + name, b"", None)
        is_made = values.kv_cas(PREFIX + name, value, cell)
        over = entry if not is_made else None if old is None or cell is None else entry_of(name, old, cell)
        if over is not None:
            values.kv_cas(over.cell, None, b"")
        if is_made and old is not None and loses_mark(old, new):
            values.kv_cas(MARK + name, None, b"")
        if is_made:
            return new
    raise StoreBusy(f"schedule {name} changes all the time; try again")


def due_entries(store: Store, after: DueEntry | None, limit: int) -> list[DueEntry]:
    """The first entries behind this one, by time; StoreError, and PartlyUnavailable with those that can be reached."""
    behind, size = "" if after is None else after.cell, limit
    found: list[DueEntry] = []
    away: PartlyUnavailable | None = None
    while True:
        cells, error = partial_result(lambda: store.kv_page(_DUE, behind, size))  # noqa: B023
        away = error or away
        found += _entries(cells)
        if len(found) >= limit or len(cells) < size:
            break
        # What others have written there does not count, and must not hide what is behind it.
        behind, size = max(cells), min(size * 2, _MOST_READ)
    if away is not None:
        raise PartlyUnavailable(str(away), found[:limit], away.missing) from away
    return found[:limit]


def _entries(cells: Mapping[str, bytes]) -> Iterator[DueEntry]:
    for cell, value in cells.items():
        if parts := _ENTRY.fullmatch(cell):
            yield DueEntry(int(parts[1], 16), parts[2], parts[3], value)


def cells_of(names: Sequence[str]) -> list[str]:
    """The names of the values of these schedules."""
    return [PREFIX + name for name in names]
