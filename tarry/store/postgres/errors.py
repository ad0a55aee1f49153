"""What PostgreSQL and its driver raise, as errors of ours: one line each that says what to do."""

import contextlib
import re
from collections.abc import Iterator

import psycopg

from tarry.errors import (
    ConfigError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TarryError,
)
from tarry.store.postgres.url import Place

AGAIN = ("40001", "40P01")
"""Serialization failure, deadlock: the same transaction once more may do."""

_NO_DATABASE = "there is no such database: make it with createdb, or name another"
_NO_ROOM = "the server has no connection left: raise max_connections, or put a pooler before it (?notify=no)"
_READ_ONLY = "it takes no writes now; is it a standby? Name all hosts of the URL, with target_session_attrs=read-write"
_PASSWORD = (
    "the server refused the user or the password: put both into the URL (special characters as %XX), or the password"
    " into PGPASSWORD or ~/.pgpass"
)
_CLEAR = (
    "whoever answers there asks for the password in clear, over a connection that does not prove who it is: add"
    " sslmode=verify-full&sslrootcert=FILE to the URL, or require_auth=password if the network between is yours alone"
)
_GONE = "what tarry made there is gone while in use; restart all that use it, and it is made anew"

Meaning = tuple[type[TarryError], str]
_KINDS: dict[str, Meaning] = {
    "22021": (StoreError, "a name has a NUL character in it, which PostgreSQL cannot keep"),
    "25006": (StoreReadOnly, _READ_ONLY),
    "25P02": (StoreUnavailable, "the transaction was broken off"),
    "25P03": (StoreUnavailable, "the transaction took too long and was broken off"),
    "3D000": (ConfigError, _NO_DATABASE),
    "3F000": (StoreError, _GONE),
    "42501": (ConfigError, "this user may not do that: let it own the schema, or GRANT it what it needs"),
    "42883": (StoreError, _GONE),
    "42P01": (StoreError, _GONE),
    "53100": (StoreFull, "the server's disk is full; free some space there"),
    "53300": (StoreUnavailable, _NO_ROOM),
    "54000": (StoreError, "a key, queue, task or lane is too long for an index: keep them under 1000 bytes"),
    "55P03": (StoreUnavailable, "somebody else held a lock for too long"),
    "57014": (StoreUnavailable, "the command took too long and was broken off"),
    "57P04": (ConfigError, "the database was dropped"),
}
_CLASSES: dict[str, Meaning] = {
    "08": (StoreUnavailable, "the connection was lost"),
    "40": (StoreUnavailable, "others were in the way again and again"),
    "53": (StoreUnavailable, "the server is short of memory or the like"),
    "57": (StoreUnavailable, "the server is shutting down, starting, or ended the connection"),
    "58": (StoreUnavailable, "the server could not read or write its files"),
    "XX": (StoreCorrupt, "the server found its data damaged"),
}
_REFUSED: dict[str, Meaning] = {
    r'requirement "!password" failed': (ConfigError, _CLEAR),
    r"password authentication failed|no password supplied": (ConfigError, _PASSWORD),
    r'role ".*" does not exist': (ConfigError, "there is no such user: make it with createuser, or name another"),
    r"authentication failed|pg_hba\.conf": (
        ConfigError,
        "the server lets nobody in from here in this way: see its pg_hba.conf, or try sslmode=require",
    ),
    r'database ".*" does not exist': (ConfigError, _NO_DATABASE),
    r"does not support SSL": (ConfigError, "the server has no TLS: turn ssl on there, or leave sslmode out"),
    r"certificate|invalid sslmode|root\.crt|SSL error": (
        ConfigError,
        "TLS failed: sslmode is one of libpq's, sslrootcert=FILE has the server's authority, the host its name",
    ),
    r"unsupported startup parameter": (ConfigError, "a pooler is between: add notify=no to the URL"),
    r"bad value|invalid .*value|invalid integer|invalid port": (
        ConfigError,
        "a value in the URL is not one that libpq takes",
    ),
    r"too many clients|remaining connection slots|too many connections": (StoreUnavailable, _NO_ROOM),
    r"starting up|shutting down|recovery": (StoreUnavailable, "the server is starting or shutting down"),
    r"failed to resolve host|could not translate host": (
        StoreUnavailable,
        "no address is known for the host: is its name right?",
    ),
    r"session is read-only|in hot standby|is not read-only": (StoreReadOnly, "no host of the URL takes writes now"),
    r"Connection refused|No such file": (
        StoreUnavailable,
        "nobody listens there: is the server running, and the port right?",
    ),
}
"""While a connection is made the driver tells no code. Servers that speak another language end up in the last case."""


@contextlib.contextmanager
def told(place: Place) -> Iterator[None]:
    """Turns what the driver raises into an error of ours."""
    try:
        yield
    except psycopg.Error as error:
        raise of(error, place) from None
    except UnicodeEncodeError:
        raise StoreError(f"{place.url}: a name has half a character in it, which PostgreSQL cannot keep") from None


def of(error: psycopg.Error, place: Place) -> TarryError:
    """The error of ours that says it."""
    code = error.sqlstate
    known = None if code is None else _KINDS.get(code) or _CLASSES.get(code[:2])
    if known is not None:
        kind, what = known
        return kind(f"{place.url}: {what} ({one_line(error)})" if kind is ConfigError else f"{place.url}: {what}")
    if isinstance(error, psycopg.DataError) and "NUL" in str(error):
        return StoreError(f"{place.url}: {_KINDS['22021'][1]}")
    if code is None and isinstance(error, psycopg.OperationalError | psycopg.ProgrammingError):
        return _without_code(error, place)
    return StoreError(f"{place.url}: {one_line(error)}")


def _without_code(error: psycopg.Error, place: Place) -> TarryError:
    text = one_line(error)
    if "timeout expired" in text:
        return StoreUnavailable(
            f"{place.url}: no answer within {place.seconds:g} s: is the server up, and the way to it free?"
        )
    for pattern, (kind, what) in _REFUSED.items():
        if re.search(pattern, text):
            return kind(f"{place.url}: {what}")
    return StoreUnavailable(f"{place.url}: the connection was lost or not made ({text})")


def one_line(error: BaseException) -> str:
    """What it says, on one line."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
