"""What an operator should know of the PostgreSQL server, and what to change there."""

import time

from tarry.store.base import Fact
from tarry.store.postgres import sql
from tarry.store.postgres.link import Link
from tarry.store.postgres.password import transport
from tarry.store.postgres.schema import SCHEMA_VERSION
from tarry.store.postgres.url import Place

FAR_OFF, SLOW, LONG = 1_000_000, 0.02, 300
"""A clock's offset in microseconds, a round trip and a transaction in seconds, from which on there is advice."""
_SETTINGS = ("server_version", "synchronous_commit", "fsync", "full_page_writes", "autovacuum")
_OLDEST = """SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::bigint
    FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()"""
_DEAD = "SELECT n_live_tup, n_dead_tup FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'job'"
_SIZE = "SELECT pg_total_relation_size('{s}.job')"
_DURABLE = {
    "fsync": "fsync=on: without it a power cut may destroy the database",
    "full_page_writes": "full_page_writes=on, unless the disk writes pages of 8 kB whole",
    "synchronous_commit": "synchronous_commit=on: what a producer was told is stored may be lost in a power cut",
}


def facts(link: Link, place: Place) -> list[Fact]:
    """Over a connection that is up."""
    names = ", ".join(f"current_setting('{name}')" for name in _SETTINGS)
    (row,) = link.rows(f"SELECT {names}")
    said = dict(zip(_SETTINGS, row, strict=True))
    return [
        Fact("postgresql", said["server_version"]),
        Fact("schema", f"{SCHEMA_VERSION} ({place.schema})"),
        transport(place, link.pgconn.ssl_in_use).fact("sslmode=verify-full&sslrootcert=FILE in the URL"),
        _durability(said),
        *_distance(link),
        _oldest(link),
        _autovacuum(link, place, said["autovacuum"]),
        Fact("size", f"{link.rows(sql.at(_SIZE, place.schema))[0][0] / 1e6:.1f} MB"),
        Fact("wake-up", "NOTIFY" if place.notify else "polling every 5 to 250 ms (notify=no)"),
    ]


def _durability(said: dict[str, str]) -> Fact:
    value = ", ".join(f"{name} {said[name]}" for name in _DURABLE)
    advice = [text for name, text in _DURABLE.items() if said[name] == "off"]
    return Fact("durability", value, "; ".join(advice))


def _distance(link: Link) -> list[Fact]:
    trips = []
    for _ in range(5):
        before = time.monotonic()
        ((told,),) = link.rows(sql.TIME)
        trips.append((time.monotonic() - before, told - time.time_ns() // 1000))
    trip, offset = min(trips)
    offset += round(trip * 500_000)
    far = f"{abs(offset) / 1e6:.1f} s apart: run NTP on both" if abs(offset) > FAR_OFF else ""
    slow = "over 20 ms: put workers nearer to the server, or expect few jobs a second of each" if trip > SLOW else ""
    return [Fact("round trip", f"{trip * 1000:.2f} ms", slow), Fact("clock offset", f"{offset / 1000:.1f} ms", far)]


def _oldest(link: Link) -> Fact:
    ((seconds,),) = link.rows(_OLDEST)
    advice = (
        "rows that are gone cannot be cleared away while it lasts: end it (pg_stat_activity)" if seconds > LONG else ""
    )
    return Fact("oldest transaction", f"{seconds} s", advice)


def _autovacuum(link: Link, place: Place, on: str) -> Fact:
    rows = link.rows(_DEAD, (place.schema,))
    live, dead = rows[0] if rows else (0, 0)
    advice = "autovacuum=on: nothing else clears away rows that are gone" if on == "off" else ""
    return Fact("autovacuum", f"{on}, {live} rows live and {dead} gone", advice)
