"""A program of one version beside a store of another, on every kind of store: steps after which older programs go on,
and steps after which they are refused."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from tarry.errors import StoreError, StoreForeign, StoreNewer
from tarry.model.job import Job
from tarry.model.limit import Limit
from tarry.store import migrating, outbox
from tarry.store.mysql import schema as mysql_schema
from tarry.store.opening import open_store
from tarry.store.outbox import Outbox
from tarry.store.postgres import migrate as postgres_migrate
from tarry.store.postgres.schema import MIGRATIONS
from tarry.store.redis import schema as redis_schema
from tarry.store.rules.entry import Entry
from tarry.store.rules.ids import uuid7
from tarry.store.shared.schema_steps import SchemaStep, oldest_allowed
from tarry.store.sqlite import schema as sqlite_schema
from tests.servers.redis import RedisCluster, RedisServer

COLUMN = "ALTER TABLE {}job ADD COLUMN weight INTEGER NOT NULL DEFAULT 3"
# Whose steps, and a made-up one.
WRITES = {
    "sqlite": COLUMN.format("tarry_"),
    "postgresql": COLUMN.format("{s}."),
    "mysql": COLUMN.format("tarry_"),
    "redis": "HSET {s}:weights default 3",
}
Know = Callable[..., None]


@pytest.fixture(params=["sqlite", "shared", "postgresql", "mysql", "redis", "cluster"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param in ("sqlite", "shared"):
        yield f"sqlite:///{tmp_path}/x.db" + "?shared=yes" * (request.param == "shared")
    elif request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.empty()
        yield server.url
        server.empty()
    elif request.param == "cluster":
        cluster: RedisCluster = request.getfixturevalue("redis_cluster")
        cluster.empty()
        yield f"{cluster.url}?timeout=15s"
        cluster.empty()
    else:
        yield request.getfixturevalue({"postgresql": "new_postgres_url", "mysql": "new_mariadb_url"}[request.param])


@pytest.fixture
def know(url: str, monkeypatch: pytest.MonkeyPatch) -> Know:
    """Lets this process be of a version with so many made-up steps more; older_go_on: of each."""
    kind = url.partition(":")[0].partition("+")[0]
    owners: dict[str, Any] = {"sqlite": sqlite_schema, "mysql": mysql_schema, "redis": redis_schema}
    first = MIGRATIONS if kind == "postgresql" else owners[kind].STEPS

    def know(*older_go_on: bool) -> None:
        more = [SchemaStep("weighs jobs", (WRITES[kind],)), SchemaStep("does nothing", ())]
        steps = (*first, *(replace(step, older_go_on=goes) for step, goes in zip(more, older_go_on, strict=False)))
        if kind == "postgresql":
            for function in (postgres_migrate.create_or_check, postgres_migrate.pending, postgres_migrate.migrate):
                defaults = (steps, *(function.__defaults__ or ())[1:])
                monkeypatch.setattr(function, "__defaults__", defaults)
        else:
            monkeypatch.setattr(owners[kind], "STEPS", steps)

    return know


def migrate(url: str) -> None:
    """As the operator of the newer version does."""
    migrating.migrate(url)
    open_store(url).close()
    assert migrating.pending(url) == []


def works(url: str) -> None:
    with closing(open_store(url)) as store:
        kept = Job(uuid7(), "mail", b"[1]", due=1)
        assert store.insert([kept]) == [kept.id]
        assert store.get([kept.id]) == [kept]
        store.limit("task:mail", Limit(5))
        store.limit("task:mail", None)


def test_older_programs_go_on_after_a_step_that_lets_them(url: str, know: Know) -> None:
    """Also those that start later, so that a rolling upgrade may take days."""
    works(url)
    with closing(open_store(url)) as running:
        know(True, True)
        migrate(url)
        works(url)
        know()
        running.insert([Job(uuid7(), "mail", b"", due=1)])
        # `tarry check` tells what the store has, and not what this program knows.
        versions = [fact.value for fact in running.diagnostics() if fact.name.endswith("schema")]
        assert {version.split()[0] for version in versions} == {"3"}
        for _ in range(2):
            works(url)
        assert (migrating.pending(url), migrating.migrate(url)) == ([], [])
        know(True, True)
        works(url)


def test_older_programs_are_refused_after_a_step_that_breaks_them(url: str, know: Know) -> None:
    works(url)
    know(True, False)
    migrate(url)
    works(url)
    for older in ((), (True,)):
        know(*older)
        with pytest.raises(StoreNewer, match=f"schema 3, for programs that know 3 or later; .* {1 + len(older)}: upgr"):
            open_store(url)
        if not url.startswith("sqlite"):
            with pytest.raises(StoreNewer):
                migrating.migrate(url)
    know(True, False)
    works(url)


def test_a_new_store_says_the_same_as_one_that_was_brought_up(url: str, know: Know) -> None:
    know(False, True)
    works(url)
    know()
    with pytest.raises(StoreNewer, match="schema 3, for programs that know 2 or later"):
        open_store(url)
    know(False)
    works(url)


def test_a_server_waits_for_the_word_of_its_operator(url: str, know: Know) -> None:
    works(url)
    know(True, False)
    if url.startswith("sqlite"):
        return
    with pytest.raises(StoreError, match=r"has schema 1, .* run `tarry migrate`"):
        open_store(url)
    first, second = migrating.pending(url)
    assert first.endswith("weighs jobs")
    assert second.endswith("does nothing (first stop what runs with the version before)")


def test_tables_that_do_not_say_who_may_use_them_are_refused(url: str, request: pytest.FixtureRequest) -> None:
    works(url)
    match url.partition(":")[0]:
        case "sqlite":
            with closing(apsw.Connection(url.removeprefix("sqlite:///").partition("?")[0])) as database:
                database.execute("DELETE FROM tarry_about WHERE name = 'oldest'")
        case "postgresql":
            request.getfixturevalue("postgres_server").call(
                f"DELETE FROM {url.partition('schema=')[2]}.about WHERE name = 'oldest'"
            )
        case "mysql" | "mariadb":
            request.getfixturevalue("mariadb_server").call(
                f"DELETE FROM {url.rpartition('/')[2]}.tarry_about WHERE name = 'oldest'"
            )
        case "redis":
            request.getfixturevalue("redis_server").call("HDEL", "{tarry}:schema", "oldest")
        case _:
            return
    with pytest.raises(StoreForeign, match=r"before its first release|that is not tarry's"):
        open_store(url)


def test_of_several_steps_the_last_that_breaks_counts() -> None:
    def after(*older_go_on: bool) -> int:
        return oldest_allowed([SchemaStep("", (), goes) for goes in older_go_on])

    assert [after(True), after(True, True), after(True, False), after(True, False, True), after(False, False)] == [
        1, 1, 2, 2, 2,
    ]  # fmt: skip


def test_the_outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def know(*steps: SchemaStep) -> Outbox:
        monkeypatch.setattr(outbox, "STEPS", (*first, *steps))
        return Outbox(tmp_path / "outbox.db")

    def keep(box: Outbox, jobs: int) -> None:
        with closing(box):
            box.keep([Entry(Job(uuid7(), "mail", b""), "replace", "x")])
            assert box.content().jobs == jobs

    first = outbox.STEPS
    step = SchemaStep("weighs them", ("ALTER TABLE total ADD COLUMN weight INTEGER",))
    keep(know(), 1)
    keep(know(step), 2)
    keep(know(), 3)
    keep(know(step, SchemaStep("breaks", (), older_go_on=False)), 4)
    with pytest.raises(StoreNewer, match="schema 3, for programs that know 3 or later; this tarry knows 2: upgrade"):
        keep(know(step), 5)
