"""Which deploy a worker is of, by its name, and when the last one began."""

import pytest
from msgspec import json

from tarry.store.memory.store import MemoryStore
from tarry.store.queries.deploys import PREFIX, Deploy, deploy_of, last_began, read_deploys

A, B = "a|1234.5", "b|1234.5"


def mark(at: int, ticks: int, scope: str = A, generation: int = 1, version: str = "") -> Deploy:
    return Deploy(f"{scope}:7:{ticks}:0", generation, at, version, "0.1", ticks)


MARKS = [mark(30, 300, generation=2), mark(25, 10, B), mark(10, 100)]


@pytest.mark.parametrize(
    ("owner", "at"),
    [
        (f"{A}:9:299:1", 10),
        (f"{A}:9:300:1", 30),
        (f"{A}:9:900:1", 30),
        (f"{B}:9:900:1", 25),
        (f"outside:{A}:9:300:1", 30),
        (f"{A}:9:99:1", None),
        ("c|1234.5:9:900:1", None),
        ("a|9999.5:9:900:1", None),
        ("a", None),
        ("", None),
        (f"{A}:9:{'9' * 30}:1", None),
        (f"{A}:9:x:1", None),
    ],
)
def test_a_worker_is_of_the_last_deploy_of_its_host_before_it_began(owner: str, at: int | None) -> None:
    found = deploy_of(owner, MARKS)
    assert (found and found.at) == at


def test_hosts_that_come_to_the_same_version_one_by_one_are_one_deploy() -> None:
    of = [mark(40, 1, A, 3, "2"), mark(35, 1, B, 3, "2"), mark(20, 1, A, 2, "1"), mark(10, 1, B, 2, "2")]
    assert last_began(of, 50) == 35
    assert last_began(MARKS, 50) == 30
    assert last_began([], 50) == 0


def test_a_mark_of_a_clock_that_was_set_back_since_is_not_the_last_deploy() -> None:
    assert last_began([mark(900, 1, A, 2, "2"), *MARKS], now=50) == 30


def test_marks_that_cannot_be_read_are_left_out() -> None:
    store = MemoryStore()
    for number, cell in enumerate([b"", b"[]", b'{"instance":7}', b'{"instance":"a","at":-1}', b'{"instance":"a"}']):
        store.kv_cas(f"{PREFIX}{number}", cell, None)
    assert read_deploys(store) == [Deploy("a")]


def test_a_host_that_goes_back_to_a_version_is_told() -> None:
    store = MemoryStore()
    versions = [(10, A, "1"), (20, A, "2"), (25, B, "1"), (30, A, "2"), (40, A, "1"), (50, A, ""), (60, A, "1")]
    for number, (at, scope, version) in enumerate(versions):
        store.kv_cas(f"{PREFIX}{number}", json.encode(mark(at, 1, scope, 1, version)), None)
    assert [one.at for one in read_deploys(store) if one.is_rollback] == [40]


def test_a_name_that_is_too_long_is_no_mark() -> None:
    store = MemoryStore()
    for number, by in enumerate(["ann", "x" * 101]):
        store.kv_cas(f"{PREFIX}{number}", json.encode(Deploy("a", by=by)), None)
    assert [one.by for one in read_deploys(store)] == ["ann"]
