"""Bringing the PostgreSQL store's schema up to date: by itself in an empty database, else when somebody says so."""

import contextlib
from collections.abc import Iterator

import psycopg

from tarry.errors import StoreError, StoreUnavailable
from tarry.store.postgres.connection import Connections
from tarry.store.postgres.errors import told
from tarry.store.postgres.link import Link
from tarry.store.postgres.schema import STEPS, Step, make_step, version
from tarry.store.postgres.url import parsed

LOCK_WITHIN = 2
"""Seconds that a step waits for a lock: while it waits, it is in the way of all who come after it."""
TRIES = 30
UNBOUNDED = 86400.0
"""Seconds: a step may build an index over all jobs."""


def at_opening(connections: Connections, steps: tuple[Step, ...] = STEPS) -> None:
    """Makes the tables where there are none; StoreNewer, and StoreError for older ones, before anything is written."""
    place = connections.place

    def found(link: Link) -> int:
        return version(link, place.schema, place.url, len(steps))

    there = connections.call(found)
    if not there:
        _make(connections, range(1, len(steps) + 1), steps)
    elif there < len(steps):
        raise StoreError(
            f"{place.url} has schema {there}, and this tarry needs {len(steps)}: run `tarry migrate`, which older"
            " workers survive"
        )


def pending(url: str, steps: tuple[Step, ...] = STEPS) -> list[str]:
    """What `migrate` would do there, a line for each step; raises what opening the store raises."""
    with _opened(url) as connections:
        return [f"schema {number}: {steps[number - 1].says}" for number in _missing(connections, steps)]


def migrate(url: str, steps: tuple[Step, ...] = STEPS) -> list[str]:
    """Does it, each step whole or not at all, whoever else does the same; answers what was done here."""
    with _opened(url) as connections:
        done = _make(connections, _missing(connections, steps), steps)
        return [f"schema {number}: {steps[number - 1].says}" for number in done]


@contextlib.contextmanager
def _opened(url: str) -> Iterator[Connections]:
    connections = Connections(parsed(url))
    try:
        yield connections
    finally:
        connections.close()


def _missing(connections: Connections, steps: tuple[Step, ...]) -> range:
    place = connections.place
    return range(connections.call(lambda link: version(link, place.schema, place.url, len(steps))) + 1, len(steps) + 1)


def _make(connections: Connections, numbers: range, steps: tuple[Step, ...]) -> list[int]:
    done = []
    with told(connections.place), connections.one() as link:
        usual, link.seconds = link.seconds, UNBOUNDED
        try:
            for number in numbers:
                if _made(link, connections, number, steps):
                    done.append(number)
        finally:
            link.seconds = usual
    return done


def _made(link: Link, connections: Connections, number: int, steps: tuple[Step, ...]) -> bool:
    place = connections.place
    for _ in range(TRIES):
        try:
            with link.transaction_of("SET LOCAL statement_timeout = 0", f"SET LOCAL lock_timeout = '{LOCK_WITHIN}s'"):
                return make_step(link, place.schema, place.url, number, steps)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            continue
    raise StoreUnavailable(
        f"{place.url}: step {number} found the tables locked for {TRIES * LOCK_WITHIN} s: end what has a transaction"
        " open there (`tarry check` says since when), then again"
    )
