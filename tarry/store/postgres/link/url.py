"""What a URL of the PostgreSQL store says."""

import re
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlunsplit

import psycopg
from msgspec import Struct
from psycopg import conninfo

from tarry.errors import ConfigError
from tarry.model.duration import SECOND, microseconds
from tarry.store.shared.masking import is_secret, split

FORM = "postgresql://USER@HOST:PORT/DATABASE"


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
    own = dict(pair for pair in given if pair[0] in ("schema", "notify", "timeout"))
    # libpq refuses options that it does not know, so ours are taken out.
    rest = [pair for pair in given if pair[0] not in own]
    plain = urlunsplit(parts._replace(query=urlencode(rest, quote_via=quote), fragment=""))
    try:
        connect = conninfo.conninfo_to_dict(plain)
    except psycopg.Error as error:
        # The message may name any part of the URL, also the password.
        raise ConfigError(_explain(shown, str(error), rest)) from None
    return PostgresUrl(shown, dict(connect), _schema(shown, own), _notify(shown, own), _timeout(shown, own))


def _without_password(parts: Any) -> str:
    user, at, where = parts.netloc.rpartition("@")
    query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if not is_secret(pair[0])]
    bare = parts._replace(netloc=user.partition(":")[0] + at + where, query=urlencode(query, safe="/"), fragment="")
    return str(urlunsplit(bare))


def _explain(shown: str, error: str, rest: list[tuple[str, str]]) -> str:
    for name, _ in rest:
        if f'"{name}"' in error:
            return f"{shown}: {name} is no option; there are schema=, notify=no, timeout=5s and those of libpq"
    return f"{shown}: not understood; write {FORM}, special characters as %XX"


def _schema(shown: str, own: dict[str, str]) -> str:
    schema = own.get("schema", "tarry")
    if not _is_name(schema):
        raise ConfigError(f"{shown}: schema={schema}: small letters, digits and _, at most 41, and not pg_...")
    return schema


def _notify(shown: str, own: dict[str, str]) -> bool:
    notify = own.get("notify", "yes")
    if notify not in ("yes", "no"):
        raise ConfigError(f"{shown}: notify={notify}: yes, or no behind a pooler in transaction mode")
    return notify == "yes"


def _timeout(shown: str, own: dict[str, str]) -> float:
    text = own.get("timeout", "5s")
    try:
        seconds = microseconds(float(text) if text.replace(".", "").isdigit() else text) / SECOND
    except ValueError:
        seconds = 0
    if not 0.1 <= seconds <= 3600:
        raise ConfigError(f"{shown}: timeout={text}: how long a command may take, as in 5s, from 0.1s to 1h")
    return seconds


def _is_name(text: str) -> bool:
    """Whether it may name a schema."""
    # Only a plain word: nobody must wonder about capitals and quotes. PostgreSQL keeps names with pg_ for itself.
    return re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", text) is not None and not text.startswith("pg_")
