"""`shield.Flag`: set in one thread, awaited in another."""

from tarry.tasks.shield import Flag
from tests.every_store.struck import StruckThread
from tests.worker.bench import LIMIT


def test_a_wait_clears_it_and_two_sets_are_one() -> None:
    flag = Flag()
    flag.set()
    flag.set()
    assert flag.wait(LIMIT)
    assert not flag.wait(0)


def test_what_is_thrown_at_any_moment_leaves_it_usable() -> None:
    flag = Flag()
    with StruckThread(lambda: flag.wait(0)) as thread:
        thread.throw(times=300)
        flag.set()
    assert thread.errors == []
    flag.set()
    assert flag.wait(LIMIT)
