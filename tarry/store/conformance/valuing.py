"""Named values: pages of them, and many in one call."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tarry.store.conformance.cases.jobs import Promises
from tarry.store.rules.base import Store


class Valuing(Promises):
    """Named values: pages of them, and many in one call."""

    def test_pages_of_named_values(self, store: Store) -> None:
        """Those with the prefix, in the order of names, from behind a name on."""
        names = ["a", "a:", "a:1", "a:2", "a:ä", "a:\U0010ffff", "b:1", "A:1"]
        store.kv_write([(name, name.encode(), None) for name in names])
        wanted = ["a:", "a:1", "a:2", "a:ä", "a:\U0010ffff"]
        assert store.kv_page("a:", "", 10) == {name: name.encode() for name in wanted}
        assert list(store.kv_page("a:", "", 2)) == wanted[:2]
        for at, name in enumerate(wanted):
            assert list(store.kv_page("a:", name, 2)) == wanted[at + 1 : at + 3]
        assert list(store.kv_page("a:", "a:15", 1)) == ["a:2"]
        assert list(store.kv_page("a:", "0", 1)) == ["a:"]
        assert store.kv_page("a:", "b", 10) == store.kv_page("c", "", 10) == store.kv_page("a:", "", 0) == {}

    def test_named_values_are_counted(self, store: Store) -> None:
        """Those with the prefix, whatever is in their names."""
        names = ["a", "a:", "a:1", "a:2", "a:ä", "a:\U0010ffff", "b:1", "A:1"]
        store.kv_write([(name, b"x", None) for name in names])
        assert [store.kv_count(prefix) for prefix in ("a:", "a:1", "b", "c", "a")] == [5, 1, 1, 0, 6]
        store.kv_cas("a:1", None, b"x")
        assert store.kv_count("a:") == 4
        store.kv_write([(f"n:{number}", b"", None) for number in range(1500)])
        assert store.kv_count("n:") == 1500

    def test_many_named_values_are_read(self, store: Store) -> None:
        """In the order of the names, also if one is asked for twice, or is not there."""
        store.kv_write([(f"a:{number}", b"%d" % number, None) for number in range(250)])
        names = [f"a:{number}" for number in (7, 249, 7)] + ["b"]
        assert store.kv_read(names) == [b"7", b"249", b"7", None]
        assert store.kv_read([f"a:{number}" for number in range(250)]) == [b"%d" % number for number in range(250)]
        assert store.kv_read([]) == []

    def test_many_named_values_are_written(self, store: Store) -> None:
        """Each if it is still as it was seen; that it has the wanted value already is as good."""
        assert store.kv_write([("a", b"1", None), ("b", b"", None), ("c", b"3", None)]) == [True] * 3
        changes = [("a", b"2", b"1"), ("b", b"x", None), ("c", None, b"3"), ("d", b"4", b"9"), ("e", None, None)]
        for _ in range(2):
            assert store.kv_write(changes) == [True, False, True, False, True]
            assert store.kv_list("") == {"a": b"2", "b": b""}
        assert store.kv_write([("b", b"", None), ("b2", b"", None)]) == [True, True]
        assert store.kv_write([]) == []

    def test_two_who_write_the_same_values(self, store: Store) -> None:
        """In whatever order each names them, neither waits for the other for ever; of two changes one is made."""
        names = [f"a:{number}" for number in range(60)]
        start = Barrier(2)

        def write(mine: bytes, order: list[str]) -> int:
            made = 0
            for turn in range(10):
                start.wait(60)
                made += sum(store.kv_write([(name, mine + b"%d" % turn, None) for name in order]))
                start.wait(60)
                there = store.kv_read(order)
                start.wait(60)
                store.kv_write([(name, None, was) for name, was in zip(order, there, strict=True)])
            return made

        with ThreadPoolExecutor(2) as writers:
            one, other = writers.submit(write, b"x", names), writers.submit(write, b"y", names[::-1])
            assert one.result() + other.result() == 10 * len(names)
        assert store.kv_count("a:") == 0

    @pytest.mark.parametrize("value", [b"\0\xff", b"", b"x" * 100_000])
    def test_any_bytes_are_written(self, store: Store, value: bytes) -> None:
        """Also none, and many."""
        assert store.kv_write([("a", value, None)]) == [True]
        assert store.kv_write([("a", b"new", value)]) == [True]
        assert store.kv_write([("a", value, b"new"), ("n", b"1", None)]) == [True, True]
        assert store.kv_read(["a"]) == [value]
        assert store.kv_page("a", "", 1) == {"a": value}
