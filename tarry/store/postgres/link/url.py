"""What a URL of the PostgreSQL store says."""

from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlunsplit

import psycopg
from msgspec import Struct
from psycopg import conninfo

from tarry.errors import ConfigError
from tarry.store.shared.masking import is_secret, split
from tarry.store.shared.url_options import TIMEOUT, read_options, switch, words

FORM = "postgresql://USER@HOST:PORT/DATABASE"
OPTIONS = {
    # Only a plain word: nobody must wonder about capitals and quotes. PostgreSQL keeps names with pg_ for itself.
    "schema": words(
        "tarry",
        "where the tables are",
        r"(?!pg_)[a-z_][a-z0-9_]{0,40}",
        "small letters, digits and _, at most 41, and not pg_...",
    ),
    "notify": switch("yes", "no behind a pooler in transaction mode"),
    "timeout": TIMEOUT,
}


class PostgresUrl(Struct, frozen=True):
    """The place of the store and how to use it. `connect`: options for libpq, with the password."""

    shown: str
    """The URL without the password, for messages."""
    connect: dict[str, Any]
    schema: str
    notify: bool
    """Whether to LISTEN and NOTIFY. False behind a pooler, where a session does not outlive a transaction."""
    timeout: float
    """Seconds that a command may take."""

    def __repr__(self) -> str:
        """The URL without the password."""
        # Error reports often show local variables.
        return f"PostgresUrl({self.shown!r})"


def parse_url(url: str) -> PostgresUrl:
    """What the URL says. ConfigError, without the password, if it is wrong."""
    parts = split(url, FORM, hosts=True)
    shown = _without_password(parts)
    given = parse_qsl(parts.query, keep_blank_values=True)
    # libpq refuses options that it does not know, so ours are taken out.
    rest = [pair for pair in given if pair[0] not in OPTIONS]
    own = read_options(shown, OPTIONS, urlencode([pair for pair in given if pair[0] in OPTIONS]))
    plain = urlunsplit(parts._replace(query=urlencode(rest, quote_via=quote), fragment=""))
    try:
        connect = conninfo.conninfo_to_dict(plain)
    except psycopg.Error as error:
        # The message may name any part of the URL, also the password.
        raise ConfigError(_explain(shown, str(error), rest)) from None
    return PostgresUrl(shown, dict(connect), **own)


def _without_password(parts: Any) -> str:
    user, at, where = parts.netloc.rpartition("@")
    query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if not is_secret(pair[0])]
    bare = parts._replace(netloc=user.partition(":")[0] + at + where, query=urlencode(query, safe="/"), fragment="")
    return str(urlunsplit(bare))


def _explain(shown: str, error: str, rest: list[tuple[str, str]]) -> str:
    for name, _ in rest:
        if f'"{name}"' in error:
            return f"{shown}: {name} is no option; there are {', '.join(OPTIONS)} and those of libpq"
    return f"{shown}: not understood; write {FORM}, special characters as %XX"
