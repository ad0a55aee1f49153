"""Facts about the PostgreSQL server for the operator, with advice."""

from tarry.store.postgres import sql
from tarry.store.postgres.link.connection import PostgresConnection
from tarry.store.postgres.link.password import transport
from tarry.store.postgres.link.url import PostgresUrl
from tarry.store.postgres.schema import read_version
from tarry.store.rules.base import Diagnostic
from tarry.store.shared.diagnostics import distance, size

LONG = 300
"""Seconds of a transaction from which on there is advice."""
_SETTINGS = ("server_version", "synchronous_commit", "fsync", "full_page_writes", "autovacuum")
# Only transactions with a snapshot (backend_xmin) keep vacuum from clearing rows away.
_OLDEST = """SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::bigint
    FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()"""
# Not the tables themselves: to count their rows would read them whole.
_DEAD = "SELECT n_live_tup, n_dead_tup FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = 'job'"
_SIZE = "SELECT pg_total_relation_size('{s}.job')"
_DURABLE = {
    "fsync": "fsync=on: without it a power cut may destroy the database",
    "full_page_writes": "full_page_writes=on, unless the disk writes pages of 8 kB whole",
    "synchronous_commit": "synchronous_commit=on: what a producer was told is stored may be lost in a power cut",
}


def diagnose(connection: PostgresConnection, url: PostgresUrl) -> list[Diagnostic]:
    """What `tarry check` shows of the server."""
    names = ", ".join(f"current_setting('{name}')" for name in _SETTINGS)
    (row,) = connection.rows(f"SELECT {names}")
    settings = dict(zip(_SETTINGS, row, strict=True))
    return [
        Diagnostic("postgresql", settings["server_version"]),
        Diagnostic("schema", f"{read_version(connection, url)} ({url.schema})"),
        transport(url, connection.pgconn.ssl_in_use).fact("sslmode=verify-full&sslrootcert=FILE in the URL"),
        _durability(settings),
        *distance(lambda: connection.rows(sql.TIME)[0][0]),
        _oldest(connection),
        _autovacuum(connection, url, settings["autovacuum"]),
        size(connection.rows(sql.for_schema(_SIZE, url.schema))[0][0]),
        Diagnostic("wake-up", "NOTIFY" if url.notify else "polling every 5 to 250 ms (notify=no)"),
    ]


def _durability(settings: dict[str, str]) -> Diagnostic:
    value = ", ".join(f"{name} {settings[name]}" for name in _DURABLE)
    advice = [text for name, text in _DURABLE.items() if settings[name] == "off"]
    return Diagnostic("durability", value, "; ".join(advice))


def _oldest(connection: PostgresConnection) -> Diagnostic:
    ((seconds,),) = connection.rows(_OLDEST)
    advice = (
        "rows that are gone cannot be cleared away while it lasts: end it (pg_stat_activity)" if seconds > LONG else ""
    )
    return Diagnostic("oldest transaction", f"{seconds} s", advice)


def _autovacuum(connection: PostgresConnection, url: PostgresUrl, on: str) -> Diagnostic:
    rows = connection.rows(_DEAD, (url.schema,))
    live, dead = rows[0] if rows else (0, 0)
    advice = "autovacuum=on: nothing else clears away rows that are gone" if on == "off" else ""
    return Diagnostic("autovacuum", f"{on}, {live} rows live and {dead} gone", advice)
