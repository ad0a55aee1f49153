"""What is wrong with a URL, a server or a name is said by the PostgreSQL store: one line each, and what to do."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tarry import errors
from tarry.model.job import HELD
from tarry.store.opening import open_store
from tarry.store.postgres.link import connection as postgres_connection
from tarry.store.postgres.store import PostgresStore
from tests.servers.postgres import PostgresServer
from tests.servers.server import free_port
from tests.store.test_postgres import asks_for_a_password, job, one, store

__all__ = ["store"]  # a fixture


@pytest.fixture
def guarded(mortal_postgres: PostgresServer) -> Iterator[str]:
    """A URL with a password that is asked for."""
    with asks_for_a_password(mortal_postgres, "alice", "scram-sha-256") as url:
        yield url


WRONG: list[tuple[Callable[[str], str], type[errors.TarryError], str]] = [
    (lambda url: url.replace("s3cret", "wr0ng"), errors.ConfigError, "refused the user or the password: put both into"),
    (lambda url: url.replace(":s3cret", ""), errors.ConfigError, "refused the user or the password: put both into"),
    (lambda url: url.replace("alice:s3cret@", "mallory@"), errors.ConfigError, "no such user: make it with createuser"),
    (lambda url: url.replace("/hers", "/his"), errors.ConfigError, "no such database: make it with createdb"),
    (lambda url: url + "?sslmode=require", errors.ConfigError, "the server has no TLS: turn ssl on there, or leave"),
    (lambda url: url + "?sslmode=always", errors.ConfigError, "TLS failed: sslmode is one of libpq's"),
    (lambda url: url.replace("127.0.0.1", "nowhere.invalid"), errors.StoreUnavailable, "no address is known for the h"),
    (lambda url: url + "?pool=3", errors.ConfigError, "pool is no option; there are schema, notify"),
    (lambda url: url + "?notify=perhaps", errors.ConfigError, "notify='perhaps': one of yes, no .no behind a pooler"),
    (lambda url: url + "?schema=Jobs%22", errors.ConfigError, "small letters, digits and _"),
    (lambda url: url + "?timeout=soon", errors.ConfigError, "timeout='soon': a duration as 5s"),
    (lambda url: url + "?timeout=0", errors.ConfigError, "timeout='0': a duration as 5s"),
    (
        lambda url: url.replace("127.0.0.1:", "127.0.0.1:x"),
        errors.ConfigError,
        r"postgresql://\*\*\*: no host, or no host:port",
    ),
    (lambda url: url + "?connect_timeout=soon", errors.ConfigError, "not one that libpq takes|not understood"),
]


@pytest.mark.parametrize(("spoil", "kind", "says"), WRONG)
def test_what_is_wrong_with_a_url(
    guarded: str, spoil: Callable[[str], str], kind: type[errors.TarryError], says: str
) -> None:
    with pytest.raises(kind, match=says) as raised:
        open_store(spoil(guarded))
    said = str(raised.value)
    assert "s3cret" not in said
    assert "wr0ng" not in said
    assert "\n" not in said
    assert raised.value.__cause__ is None


def test_a_password_is_shown_nowhere(guarded: str) -> None:
    with closing(open_store(guarded)) as store:
        store.insert([one()])
        assert store.url == guarded.replace(":s3cret", "")
        assert "s3cret" not in repr(store.diagnostics())
        assert "s3cret" not in Path("/proc/self/cmdline").read_text()
    with closing(open_store(f"{guarded.replace(':s3cret', '')}?password=s3cret&notify=no")) as store:
        assert store.url == guarded.replace(":s3cret", "") + "?notify=no"


def test_a_port_where_nobody_listens() -> None:
    with pytest.raises(errors.StoreUnavailable, match="nobody listens there: is the server running, and the port"):
        open_store(f"postgres://me@127.0.0.1:{free_port()}/x")


def test_a_user_who_may_make_nothing(mortal_postgres: PostgresServer, guarded: str) -> None:
    mortal_postgres.call("CREATE USER bob")
    try:
        with pytest.raises(errors.ConfigError, match=r"this user may not do that: let it own the schema, or GRANT"):
            open_store(f"postgresql://bob@127.0.0.1:{mortal_postgres.port}/hers?schema=his")
    finally:
        mortal_postgres.call("DROP USER bob")


def test_an_old_server(mortal_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_connection, "OLDEST", 990000)
    with pytest.raises(errors.ConfigError, match=r"PostgreSQL 1\d is too old: 13 or later is needed"):
        open_store(mortal_postgres.url)


def test_a_database_in_another_encoding(mortal_postgres: PostgresServer) -> None:
    mortal_postgres.call("CREATE DATABASE latin ENCODING LATIN1 LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(errors.ConfigError, match=r"encoding is LATIN1: tarry needs one in UTF8"):
            open_store(mortal_postgres.url.replace("/postgres", "/latin").replace("latin@", "postgres@"))
    finally:
        mortal_postgres.call("DROP DATABASE latin WITH (FORCE)")


TOO_LONG = "".join(chr(32 + n * n * 7 % 9001) for n in range(9000))
"""And of too many kinds to be compressed."""


@pytest.mark.parametrize(
    ("key", "says"), [("a\0b", "NUL character"), ("\ud800", "half a character"), (TOO_LONG, "too long for an index")]
)
def test_names_that_cannot_be_kept(store: PostgresStore, key: str, says: str) -> None:
    with pytest.raises(errors.StoreError, match=says):
        store.insert([job(store, key=key, key_held_until=HELD)])
    assert store.insert([one()])


def test_tables_that_are_gone(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    mortal_postgres.call("DROP SCHEMA tarry CASCADE")
    with pytest.raises(errors.StoreError, match="gone while in use; restart"):
        store.insert([one()])


def test_a_store_that_was_closed(store: PostgresStore) -> None:
    store.close()
    with pytest.raises(errors.StoreUnavailable, match="was closed; open it again"):
        store.insert([one()])


def test_facts(mortal_postgres: PostgresServer, store: PostgresStore) -> None:
    with psycopg.connect(mortal_postgres.url) as theirs:
        theirs.execute("SELECT 1")
        facts = {fact.name: fact for fact in store.diagnostics()}
        assert facts["durability"].value == "fsync on, full_page_writes on, synchronous_commit on"
        assert facts["durability"].advice == ""
        assert facts["schema"].value == "1 (tarry)"
        assert {"postgresql", "round trip", "clock offset", "oldest transaction", "autovacuum", "size"} <= facts.keys()
    lax = f"{mortal_postgres.url}?options=-c%20synchronous_commit=off&notify=no"
    with closing(open_store(lax)) as other:
        assert "synchronous_commit=on" in {fact.name: fact for fact in other.diagnostics()}["durability"].advice
