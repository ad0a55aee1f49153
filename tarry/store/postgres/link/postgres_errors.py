"""Translates errors of PostgreSQL and its driver into errors of tarry: one line each, with a way out."""

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
from tarry.store.postgres.link.url import PostgresUrl
from tarry.store.shared.uncertain import LOST

RETRIED = ("40001", "40P01")
"""Serialization failure, deadlock: the same transaction may succeed at the next try."""

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

_Meaning = tuple[type[TarryError], str]
_KINDS: dict[str, _Meaning] = {
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
_CLASSES: dict[str, _Meaning] = {
    "08": (StoreUnavailable, "the connection was lost"),
    "40": (StoreUnavailable, "others were in the way again and again"),
    "53": (StoreUnavailable, "the server is short of memory or the like"),
    "57": (StoreUnavailable, "the server is shutting down, starting, or ended the connection"),
    "58": (StoreUnavailable, "the server could not read or write its files"),
    "XX": (StoreCorrupt, "the server found its data damaged"),
}
# By the text, since the driver has no code for errors while it connects. The first match counts: the particular comes
# before the general, as "password authentication failed" before "authentication failed".
_REFUSED: dict[str, _Meaning] = {
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
"""Errors of connecting, by pattern. Messages in other languages match none."""


@contextlib.contextmanager
def translate_errors(url: PostgresUrl) -> Iterator[None]:
    """Within, errors of the driver become errors of tarry."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, url) from None
    except UnicodeEncodeError:
        # A lone surrogate, as os.fsdecode makes of bytes that are no UTF-8.
        raise StoreError(f"{url.shown}: a name has half a character in it, which PostgreSQL cannot keep") from None


def translate(error: psycopg.Error, url: PostgresUrl, connecting: bool = False) -> TarryError:
    """The error of tarry for an error of the driver. connecting: there was no connection yet."""
    code = error.sqlstate
    known = None if code is None else _KINDS.get(code) or _CLASSES.get(code[:2])
    if known is not None:
        kind, what = known
        return kind(f"{url.shown}: {what} ({one_line(error)})" if kind is ConfigError else f"{url.shown}: {what}")
    # The driver refuses a NUL itself, so there is no code of the server.
    if isinstance(error, psycopg.DataError) and "NUL" in str(error):
        return StoreError(f"{url.shown}: {_KINDS['22021'][1]}")
    if code is None and isinstance(error, psycopg.OperationalError | psycopg.ProgrammingError):
        return _without_code(error, url, connecting)
    return StoreError(f"{url.shown}: {one_line(error)}")


def _without_code(error: psycopg.Error, url: PostgresUrl, connecting: bool) -> TarryError:
    text = one_line(error)
    if "timeout expired" in text:
        return StoreUnavailable(
            f"{url.shown}: no answer within {url.timeout:g} s: is the server up, and the way to it free?"
        )
    for pattern, (kind, what) in _REFUSED.items():
        if re.search(pattern, text):
            return kind(f"{url.shown}: {what}")
    what = "no connection could be made: is the server up, and host and port right?" if connecting else LOST
    return StoreUnavailable(f"{url.shown}: {what} ({text})")


def one_line(error: BaseException) -> str:
    """The message on one line, cut if it is long."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
