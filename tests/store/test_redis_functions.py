"""Functions of the Redis store: loaded where they lack, and done without where the server does not let us."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.errors import StoreError
from tarry.store.conformance.cases.jobs import LEASE, NOW, ids, made, put, taken
from tarry.store.opening import open_store
from tarry.store.redis import lua_sources, scripts
from tarry.store.redis.link import functions
from tarry.store.redis.link.base import FunctionLibrary, Script
from tarry.store.redis.store import RedisStore
from tarry.store.rules.base import BANDS, Store, Want
from tests.servers.redis import RedisServer

LIBRARY = scripts.GET.library
assert LIBRARY is not None
RIGHTS = ("~{tarry*}*", "&{tarry*}*", "+@all")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def store(server: RedisServer) -> Iterator[RedisStore]:
    yield from opened(server.url)


def opened(url: str) -> Iterator[RedisStore]:
    store = open_store(url)
    assert isinstance(store, RedisStore)
    yield store
    store.close()


def libraries(server: RedisServer) -> set[str]:
    words = server.call("FUNCTION", "LIST").split()
    return {word for word in words if word.startswith("tarry_") and "_" not in word.removeprefix("tarry_")}


def calls(server: RedisServer, command: str) -> int:
    """How often the server has done that."""
    lines = [
        line for line in server.call("INFO", "commandstats").splitlines() if line.startswith(f"cmdstat_{command}:")
    ]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


def says(store: Store) -> str:
    return next(fact.value for fact in store.diagnostics() if fact.name == "functions")


def by_account(server: RedisServer, *rights: str) -> Iterator[RedisStore]:
    server.call("ACL", "SETUSER", "ann", "on", ">secret", *RIGHTS, *rights)
    yield from opened(server.url.replace("//", "//ann:secret@"))


def works(store: Store) -> None:
    jobs = put(store, 2)
    assert ids(taken(store)) == ids(jobs)


def test_they_are_loaded_once_and_called(store: RedisStore, server: RedisServer) -> None:
    for other in opened(server.url):
        works(store)
        works(other)
    assert LIBRARY is not None
    assert libraries(server) == {LIBRARY.name}
    assert (calls(server, "function|load"), calls(server, "eval"), calls(server, "evalsha")) == (1, 0, 0)
    assert says(store) == "called"


def test_they_are_loaded_again_after_a_flush(store: RedisStore, server: RedisServer) -> None:
    works(store)
    server.call("FUNCTION", "FLUSH")
    works(store)
    assert calls(server, "eval") == 0
    assert says(store) == "called"


def test_of_several_calls_each_is_done_once_though_all_were_unknown(store: RedisStore, server: RedisServer) -> None:
    server.call("FUNCTION", "FLUSH")
    jobs = made(store, 2500)
    assert store.insert(jobs) == ids(jobs)
    assert [tally.count for tally in store.counts()] == [2500]


def test_an_error_leaves_nothing_to_the_next_call(store: RedisStore, server: RedisServer) -> None:
    put(store)
    server.call("SET", "{tarry}:counts", "of another kind")
    with pytest.raises(StoreError):
        store.insert(made(store, 1, key="a"))
    server.call("DEL", "{tarry}:counts")
    put(store, key="b")
    assert [tally.count for tally in store.counts()] == [1]


def test_stores_of_two_prefixes_share_them(store: RedisStore, server: RedisServer) -> None:
    for other in opened(f"{server.url}?prefix=other"):
        works(store)
        works(other)
        assert len(libraries(server)) == 1
        assert [tally.count for tally in (*store.counts(), *other.counts())] == [2, 2]


def test_many_stores_share_them(store: RedisStore) -> None:
    """More than it keeps the names of keys for."""
    put(store, 2)
    for number in range(130):
        assert store._link.run(scripts.GET, [f"{{p{number}}}:jobs"], [bytes(16)]) == [[None], [None]]
    assert len(taken(store)) == 2


def test_what_a_worker_wants_is_kept_in_bounds(store: RedisStore) -> None:
    jobs = put(store, 3)
    for number in range(120):
        wants = [Want(f"{number}{'q' * 240}{n}", band, 1) for n in range(12) for band in BANDS]
        found = store.claim([*wants, Want("default", 0, 1)] if number % 50 == 0 else wants, 1, "ann", LEASE, NOW)
        assert len(found) == (number % 50 == 0)
    assert sum(tally.count for tally in store.counts()) == len(jobs)


@pytest.mark.parametrize("refused", [("-fcall",), ("-function",), ("-fcall", "-function")])
def test_an_account_without_the_right_calls_scripts(server: RedisServer, refused: tuple[str, ...]) -> None:
    for store in by_account(server, *refused):
        works(store)
        works(store)
        assert calls(server, "evalsha") > 0
        assert says(store) == "not called: scripts do the same"


def test_who_may_not_load_calls_what_others_have_loaded(store: RedisStore, server: RedisServer) -> None:
    works(store)
    for other in by_account(server, "-function"):
        works(other)
        assert calls(server, "eval") == 0
        assert says(other) == "called"


def test_a_server_without_functions(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "old", "--rename-command", "FCALL", "", "--rename-command", "FUNCTION", "")
    server.start()
    try:
        for store in opened(server.url):
            works(store)
            assert says(store) == "not called: scripts do the same"
    finally:
        server.kill()


def test_while_memory_is_full_scripts_do_the_same(store: RedisStore, server: RedisServer) -> None:
    jobs = put(store, 2)
    server.call("FUNCTION", "FLUSH")
    server.call("CONFIG", "SET", "maxmemory", "1mb")
    assert ids(taken(store)) == ids(jobs)
    assert calls(server, "eval") > 0
    server.call("CONFIG", "SET", "maxmemory", "0")
    works(store)
    assert says(store) == "called"


def test_versions_work_side_by_side_and_do_not_pile_up(store: RedisStore, server: RedisServer) -> None:
    """An old version's library may go. It is loaded again by whoever calls it next."""
    count = functions.KEPT + 1
    for number in range(count):
        assert store._link.run(version(number), [], []) == number
    assert len(libraries(server)) <= functions.KEPT
    for number in range(count):
        assert store._link.run(version(number), [], []) == number
    works(store)
    assert len(libraries(server)) <= functions.KEPT
    assert calls(server, "eval") == 0


def test_libraries_of_others_stay(store: RedisStore, server: RedisServer) -> None:
    server.call("FUNCTION", "LOAD", "#!lua name=theirs\nredis.register_function('theirs', function() return 1 end)")
    for number in range(functions.KEPT + 1):
        store._link.run(version(number), [], [])
    assert server.call("FCALL", "theirs", "0") == "1"


def version(number: int) -> Script:
    name = f"tarry_{number:016x}"
    text = f"#!lua name={name}\nredis.register_function('{name}_x', function() return {number} end)"
    return Script("x", f"return {number}", library=FunctionLibrary(name, text), function=f"{name}_x")


def test_what_one_call_changes_is_made_anew_for_each() -> None:
    """A name in small letters is a variable, or one of Lua's own functions."""
    kinds = {name: definition.kind for name, definition in lua_sources.DEFINITIONS.items()}
    assert {kinds[name] for name in ("tallies", "levels", "line_adds", "pruned_ids", "plain_jobs")} == {"state"}
    assert {kinds[name] for name in ("JOBS", "P", "LIMITS", "PLANS")} == {"store"}
    assert {kinds[name] for name in ("call", "insert", "PAGE_BYTES", "WIDTHS", "open_line")} == {"lasting"}
