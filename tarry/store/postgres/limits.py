"""Sets, lifts and recounts limits, and keeps the rooms of bounded queues; each within one transaction of its caller."""

import time
from collections.abc import Sequence

import msgspec
import psycopg

from tarry.errors import StoreBusy
from tarry.model.change import Change
from tarry.model.limit import QUEUE, Level, Limit
from tarry.store.postgres import open_lanes, sql
from tarry.store.postgres import packing as pack
from tarry.store.postgres.link.connection import PostgresConnection
from tarry.store.postgres.link.pool import LONG_TIMEOUT, PostgresPool
from tarry.store.rules.kept_places import KeptPlace, job_keys, name_for, name_of
from tarry.store.rules.lanes import count_by_level, decode_limit
from tarry.store.shared.backoff import jitter


def read_limits(link: PostgresConnection, schema: str) -> dict[str, Limit]:
    """The limits that are set."""
    return {name: decode_limit(value) for name, value in link.rows(sql.for_schema(sql.LIMITS, schema))}


def change_limit(link: PostgresConnection, schema: str, name: str, limit: Limit) -> bool:
    """Changes a limit that is set; False if it is not set."""
    # Since the limit was set, running jobs are counted and jobs have lanes. So there is nothing to count, and others
    # need not wait.
    changed = link.run(sql.for_schema(sql.CHANGE_LIMIT, schema), (name, msgspec.json.encode(limit))) > 0
    if changed:
        open_lanes.reopen_task(link, schema, name)
    return changed


class NotAlone(Exception):
    """Another transaction that inserted, claimed or changed jobs is still open."""


def set_limit_alone(pool: PostgresPool, schema: str, name: str, limit: Limit | None) -> None:
    """Sets or lifts a limit. StoreBusy: a transaction that enqueued stays open for too long."""
    until = time.monotonic() + LONG_TIMEOUT
    while time.monotonic() < until:
        try:
            return pool.call_long(lambda connection: set_limit(connection, schema, name, limit))
        except NotAlone:
            time.sleep(jitter(0.3))  # meanwhile the others go on
    raise StoreBusy(
        f"{pool.url.shown}: the limit {name} is not set: a transaction that enqueued has been open for over"
        f" {LONG_TIMEOUT} s; see pg_stat_activity, end it, and set the limit again"
    )


def set_limit(link: PostgresConnection, schema: str, name: str, limit: Limit | None) -> None:
    """Sets or lifts a limit, and counts what runs now. NotAlone: try again."""
    try:
        link.run(sql.for_schema(sql.NOBODY_ELSE, schema))
    except psycopg.errors.LockNotAvailable:
        raise NotAlone from None
    if limit is None:
        link.run(sql.for_schema(sql.LIFT_LIMIT, schema), (name,))
    else:
        link.run(sql.for_schema(sql.SET_LIMIT, schema), (name, msgspec.json.encode(limit)))
    # What an earlier limit has counted is not true any more. Only a lifted limit loses its rate's next start, too.
    link.run(sql.for_schema(sql.UNUSED, schema), (name, limit is None))
    kind, _, which = name.partition(":")
    # Jobs of a limited task wait in lanes. Those that came before have none yet.
    if limit is not None and kind + ":" != QUEUE:
        link.run(sql.for_schema(sql.INTO_LANES, schema), (which,))
    open_lanes.reset_lanes(link, schema, name, limit)
    if limit is None:
        return
    running = link.rows(sql.for_schema(sql.RUNNING_IN[kind + ":" == QUEUE], schema), (which,))
    levels = count_by_level([(queue, task, lane) for queue, task, lane in running], {name: limit})
    if levels:
        link.run(sql.for_schema(sql.RUNNING_NOW, schema), (pack.texts(levels), pack.big_ints(levels.values())))


def keep_places(link: PostgresConnection, schema: str, changes: Sequence[Change], now: int) -> None:
    """Counts the attempts that go on after these changes a second time, which their ends take back; in a transaction
    with the changes."""
    going_on = {name_for(change) for change in changes if change.keeps_places}
    if not going_on:
        return
    rows = link.rows(sql.for_schema(sql.LOCK_RUNNING, schema), (pack.uuids([change.id for change in changes]),))
    limits = read_limits(link, schema)
    places = {
        name: KeptPlace(until or now, *names)
        for id, epoch, owner, *names, until in rows
        if (name := name_of(owner, id, epoch)) in going_on and count_by_level([(names[0], names[1], names[2])], limits)
    }
    counts = count_by_level([place.job_key for place in places.values()], limits)
    if counts:
        cells = pack.texts(places), pack.blobs(place.encode() for place in places.values())
        link.run(sql.for_schema(sql.KEEP, schema), cells)
        link.run(sql.for_schema(sql.ADD_RUNNING, schema), (pack.texts(counts), pack.big_ints(counts.values())))


def free_places(link: PostgresConnection, schema: str, names: Sequence[str], now: int) -> None:
    """Removes the kept places of these names, as far as there are any, and lowers the levels that count them."""
    with link.transaction_with():
        values = [bytes(value) for (value,) in link.rows(sql.for_schema(sql.FREE, schema), (pack.texts(names),))]
        if values:
            queues, tasks, lanes = map(pack.texts, zip(*job_keys(values), strict=True))
            # Any ids: each tells apart one attempt that has ended.
            ids = pack.uuids([number.to_bytes(16, "big") for number in range(len(values))])
            link.rows(sql.for_schema(sql.ENDED, schema), (ids, queues, tasks, lanes, now))


def all_limits(link: PostgresConnection, schema: str) -> dict[str, tuple[Limit, Level]]:
    """Limits and levels, by name."""
    limits = read_limits(link, schema)
    rows = link.rows(sql.for_schema(sql.LEVELS_SEEN, schema), (pack.texts(limits),))
    levels = {name: Level(running, following) for name, running, following in rows}
    return {name: (limit, levels.get(name, Level())) for name, limit in limits.items()}


def recount(link: PostgresConnection, schema: str, names: Sequence[str]) -> int:
    """Sets these levels to the number of jobs that run; answers how many were wrong."""
    packed = pack.texts(names)
    link.run(sql.for_schema(sql.LEVELS_THERE, schema), (packed,))
    link.run(sql.for_schema(sql.LOCK_LEVELS, schema), (packed,))
    # With the locks held, all earlier changes of these levels are committed, and later ones add to this count.
    return link.run(sql.for_schema(sql.RECOUNT, schema), (packed,))


def reopen_wrongly_closed(link: PostgresConnection, schema: str, now: int) -> int:
    """Opens lanes that need not be closed; answers how many."""
    lanes = open_lanes.find_wrongly_closed(link, schema, read_limits(link, schema), now)
    if lanes:
        open_lanes.reopen(link, schema, lanes)
    return len(lanes)


class PostgresRooms:
    """The rooms of queues with a bound, in the transaction of the connection."""

    def __init__(self, link: PostgresConnection, schema: str) -> None:
        self._link, self._schema = link, schema

    def lock(self, name: str) -> bytes | None:
        """The value of a cell, locked; empty if there was none."""
        self._link.run(sql.for_schema(sql.CELL_THERE, self._schema), (name,))
        ((value,),) = self._link.rows(sql.for_schema(sql.LOCK_CELL, self._schema), (name,))
        return bytes(value)

    def save(self, name: str, value: bytes) -> None:
        """Sets the value of a cell that is locked."""
        self._link.run(sql.for_schema(sql.SAVE_CELL, self._schema), (name, value))

    def count(self, queue: str, most: int) -> int:
        """How many jobs of a queue wait; at most `most`."""
        # After the lock: at this level of isolation each statement sees what was committed before it.
        ((count,),) = self._link.rows(sql.for_schema(sql.COUNT_WAITING, self._schema), (queue, most))
        return int(count)
