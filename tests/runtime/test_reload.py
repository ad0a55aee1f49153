"""A new generation takes the place of the old one, one process at a time, or nothing comes of it."""

import os
import random
import signal
import time
from uuid import UUID

import pytest

from tarry.runtime.role import Wear
from tarry.runtime.scale_request import scale_path
from tests.runtime.master_harness import KEEPER, Theatre, alive, until
from tests.runtime.scripted_roles import FIRST, SECOND

TWO = ("worker", "default", 2, "plain")


def reloaded(theatre: Theatre, count: int = 1) -> str:
    """Waits until so many reloads have ended; answers why the last came to nothing."""
    until(lambda: theatre.board().notice.done >= count)
    return theatre.board().notice.trouble


def test_every_process_is_replaced_the_new_one_first(theatre: Theatre) -> None:
    master = theatre.serve(TWO, KEEPER)
    before, keeper = theatre.ready(), theatre.ready("keeper")
    theatre.next(TWO, KEEPER)
    master.send_signal(signal.SIGHUP)
    assert reloaded(theatre) == ""
    until(lambda: len(theatre.children()) == 2 and len(theatre.children("keeper")) == 1)
    assert not set(before + keeper) & set(theatre.ready() + theatre.ready("keeper"))
    assert {child.generation for child in theatre.board().children} == {2}
    assert theatre.board().notice.generation == 2
    assert {child.name for child in theatre.children()} == {"worker default.1", "worker default.2"}
    assert [child.last_exit for child in theatre.children()] == ["status 0", "status 0"]
    what = [
        fact["what"] for fact in theatre.facts() if fact["what"] in ("ready", "asked") and fact["pid"] not in keeper
    ]
    assert sorted(what) == ["asked"] * 2 + ["ready"] * 4
    # One who is asked to end notes it in its own time: perhaps after the next one is ready, never before its own.
    asked = [number for number, one in enumerate(what) if one == "asked"]
    assert [what[:number].count("ready") >= place for number, place in zip(asked, (3, 4), strict=True)] == [True] * 2
    assert len(theatre.facts("sang")) == 1


def test_who_still_works_holds_nobody_up_and_ends_when_it_is_done(theatre: Theatre) -> None:
    lingering = ("worker", "default", 2, "lingers")
    master = theatre.serve(lingering, KEEPER)
    before = theatre.ready()
    theatre.next(TWO, KEEPER)
    master.send_signal(signal.SIGHUP)
    assert reloaded(theatre) == ""
    assert all(alive(pid) for pid in before)
    assert [child.boot for child in theatre.children() if child.pid in before] == ["stopping", "stopping"]
    (theatre.directory / "go").touch()
    until(lambda: not any(alive(pid) for pid in before))
    until(lambda: len(theatre.children()) == 2)


def test_reload_timeout_ends_what_takes_too_long(theatre: Theatre) -> None:
    master = theatre.serve(("worker", "default", 1, "stubborn"), KEEPER, reload_timeout=0.3)
    (before,) = theatre.ready()
    theatre.next(TWO, KEEPER, reload_timeout=0.3)
    master.send_signal(signal.SIGHUP)
    until(lambda: not alive(before))
    until(theatre.told)
    assert theatre.told()[0]["on"] == []


@pytest.mark.parametrize(
    ("canary", "why"),
    [
        ("dies", "canary could not start: no module named shop"),
        ("drops", "the canary ended with status 7 before it was ready"),
        ("never_sings", "the canary was not ready within 0.5 s"),
    ],
)
def test_without_a_canary_that_lives_nothing_changes(theatre: Theatre, canary: str, why: str) -> None:
    master = theatre.serve(TWO, KEEPER)
    before = theatre.ready()
    theatre.next(TWO, KEEPER, canary=canary, boot_limit=0.5)
    master.send_signal(signal.SIGHUP)
    assert why in reloaded(theatre)
    assert theatre.ready() == before
    assert theatre.board().notice.generation == 1
    theatre.next(TWO, KEEPER)
    master.send_signal(signal.SIGHUP)
    assert reloaded(theatre, 2) == ""


def test_a_plan_that_cannot_be_read_changes_nothing(theatre: Theatre) -> None:
    master = theatre.serve(TWO, KEEPER)
    before = theatre.ready()
    (theatre.directory / "next").write_text("{")
    master.send_signal(signal.SIGHUP)
    assert reloaded(theatre).startswith("next: ")
    assert theatre.ready() == before


@pytest.mark.parametrize("ending", ["cannot_boot", "vanishes"])
def test_where_the_new_ones_cannot_come_up_the_old_stay(theatre: Theatre, ending: str) -> None:
    """Although the canary lived."""
    master = theatre.serve(("worker", "a", 1, "plain"), ("worker", "b", 2, "plain"), KEEPER)
    before = {child.pid for child in theatre.children() if child.pool == "b"}
    theatre.next(("worker", "a", 1, "plain"), ("worker", "b", 2, ending), KEEPER)
    master.send_signal(signal.SIGHUP)
    assert "worker b.1 " in reloaded(theatre)
    assert {child.pid for child in theatre.children() if child.pool == "b" and child.boot == "ready"} == before
    until(lambda: len(theatre.children()) == 3)
    assert theatre.board().state == "serving"
    (killed,) = sorted(before)[:1]
    os.kill(killed, signal.SIGKILL)
    until(lambda: len([c for c in theatre.children() if c.pool == "b" and c.boot == "ready"]) == 2)


def test_pools_come_go_grow_and_shrink(theatre: Theatre) -> None:
    master = theatre.serve(("worker", "a", 3, "plain"), ("worker", "b", 1, "plain"), KEEPER)
    theatre.next(("worker", "a", 1, "plain"), ("worker", "c", 5, "busy"), KEEPER, cells=9)
    master.send_signal(signal.SIGHUP)
    assert reloaded(theatre) == ""
    until(lambda: sorted(child.pool for child in theatre.children()) == ["a", *["c"] * 5])
    assert {len(child.running) for child in theatre.children() if child.pool == "c"} == {2}
    assert [(pool.name, pool.workers) for pool in theatre.board().notice.pools] == [("a", 1), ("c", 5)]


def test_reloads_that_are_asked_for_meanwhile_are_one_more(theatre: Theatre) -> None:
    master = theatre.serve(TWO, KEEPER)
    for _ in range(5):
        master.send_signal(signal.SIGHUP)
        time.sleep(0.01)
    until(lambda: theatre.board().notice.done == theatre.board().notice.asked > 0)
    assert theatre.board().notice.generation <= 1 + theatre.board().notice.asked
    until(lambda: len(theatre.ready()) == len(theatre.children()) == 2)


def test_a_stop_in_the_middle_of_a_reload_stops(theatre: Theatre) -> None:
    for _ in range(5):
        master = theatre.serve(TWO, KEEPER)
        master.send_signal(signal.SIGHUP)
        time.sleep(random.uniform(0, 0.05))
        master.send_signal(signal.SIGTERM)
        assert theatre.ended(master) == (0, "")
    assert not any(alive(fact["pid"]) for fact in theatre.facts())


def test_a_stop_ends_a_canary_that_never_sings(theatre: Theatre) -> None:
    master = theatre.serve(TWO, KEEPER)
    theatre.next(TWO, KEEPER, canary="never_sings")
    master.send_signal(signal.SIGHUP)
    until(lambda: theatre.children("canary"))
    master.send_signal(signal.SIGINT)
    assert theatre.ended(master) == (0, "")


def test_a_worker_killed_in_the_middle_of_a_reload_is_replaced_by_a_new_one(theatre: Theatre) -> None:
    master = theatre.serve(("worker", "default", 4, "plain"), KEEPER)
    master.send_signal(signal.SIGHUP)
    until(lambda: len(theatre.facts("ready")) >= 5)
    for pid in theatre.ready()[:2]:
        os.kill(pid, signal.SIGKILL)
    assert reloaded(theatre) == ""
    until(lambda: len(theatre.ready()) == len(theatre.children()) == 4)
    assert {child.generation for child in theatre.children()} == {2}


def test_winch_ends_the_workers_and_a_reload_brings_them_back(theatre: Theatre) -> None:
    master = theatre.serve(TWO, KEEPER)
    master.send_signal(signal.SIGWINCH)
    until(lambda: not theatre.children())
    assert theatre.board().state == "resting"
    assert theatre.ready("keeper")
    master.send_signal(signal.SIGHUP)
    assert reloaded(theatre) == ""
    until(lambda: len(theatre.ready()) == 2)
    assert theatre.board().state == "serving"


def test_ttin_and_ttou_change_the_count_by_one(theatre: Theatre) -> None:
    master = theatre.serve(TWO, KEEPER)
    master.send_signal(signal.SIGTTIN)
    until(lambda: len(theatre.ready()) == 3)
    for count in (2, 1, 1):
        master.send_signal(signal.SIGTTOU)
        until(lambda: len(theatre.ready()) == len(theatre.children()) == count)  # noqa: B023
    assert [child.name for child in theatre.children()] == ["worker default.1"]


def test_a_request_that_makes_no_sense_is_no_signal_for_one_more(theatre: Theatre) -> None:
    master = theatre.serve(TWO, KEEPER)
    before = theatre.ready()
    for request in (b"nonsense", b'["default",-1]', b'["nobody",5]'):
        path = scale_path(theatre.pid_file)
        path.write_bytes(request)
        master.send_signal(signal.SIGTTIN)
        until(lambda: not path.exists())  # noqa: B023
    master.send_signal(signal.SIGUSR1)
    until(lambda: "master pid" in theatre.log())
    assert theatre.ready() == before
    assert [pool.workers for pool in theatre.board().notice.pools] == [2]


@pytest.mark.parametrize(
    ("wear", "why"),
    [(Wear(jobs=7), "7 jobs"), (Wear(age=0.2), "its age"), (Wear(memory=12_000_000), "12 MB of memory")],
)
def test_who_has_done_its_part_is_replaced_the_new_one_first(theatre: Theatre, wear: Wear, why: str) -> None:
    theatre.serve(("worker", "default", 2, "busy"), KEEPER, wear=wear)
    until(lambda: len(theatre.facts("asked")) >= 4)
    assert f"asked to end, pid {theatre.facts('asked')[0]['pid']}: {why}" in theatre.log()
    there = 0
    for line in theatre.log().partition(" serving")[2].splitlines():
        there += ("worker" in line and " ready, pid" in line) - ("worker" in line and " asked to end" in line)
        assert there >= 0, "one was to leave before another was there"


def test_who_takes_too_much_memory_is_killed_and_the_jobs_that_were_on_count_it(theatre: Theatre) -> None:
    theatre.serve(("worker", "default", 1, "busy"), KEEPER, wear=Wear(killed_at=12_000_000))
    until(theatre.told)
    assert theatre.told()[0]["on"] == [FIRST.hex(), SECOND.hex()]
    assert (theatre.told()[0]["stuck"], theatre.told()[0]["why"]) == ([], "signal 9")
    named = f"{UUID(bytes=FIRST)} (shop.first), {UUID(bytes=SECOND)} (shop.zweites·)"
    assert f"12 MB of memory, more than kill_memory; jobs on, each counts a death: {named}\n" in theatre.log()


def test_a_pool_that_cannot_come_up_is_told_and_the_others_go_on(theatre: Theatre) -> None:
    theatre.serve(("worker", "good", 1, "plain"), ("worker", "bad", 1, "cannot_boot_again"), KEEPER)
    good, bad = theatre.ready()
    os.kill(bad, signal.SIGKILL)
    until(lambda: [pool.failed for pool in theatre.board().notice.pools if pool.failed])
    (pool,) = [pool for pool in theatre.board().notice.pools if pool.failed]
    assert (pool.name, pool.failed) == ("bad", "worker bad.1 could not start: gone bad")
    assert theatre.ready() == [good]
