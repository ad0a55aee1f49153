"""A new generation takes the place of the old one, one process at a time, or nothing comes of it."""

import os
import signal
import time
from uuid import UUID

import pytest

from tarry.runtime.request_files import scale_path
from tarry.runtime.role import RecycleLimits as Limits
from tests.runtime.master_harness import KEEPER, MasterHarness, alive, until
from tests.runtime.scripted_roles import FIRST, SECOND
from tests.seeds import seeded_random

TWO = ("worker", "default", 2, "plain")


def wait_for_reload(harness: MasterHarness, count: int = 1) -> str:
    """Waits until so many reloads have ended; answers why the last came to nothing."""
    until(lambda: harness.board().notice.done >= count)
    return harness.board().notice.trouble


def test_every_process_is_replaced_the_new_one_first(harness: MasterHarness) -> None:
    master = harness.serve(TWO, KEEPER)
    before, keeper = harness.ready(), harness.ready("keeper")
    harness.next(TWO, KEEPER)
    master.send_signal(signal.SIGHUP)
    assert wait_for_reload(harness) == ""
    until(lambda: len(harness.children()) == 2 and len(harness.children("keeper")) == 1)
    assert not set(before + keeper) & set(harness.ready() + harness.ready("keeper"))
    assert {child.generation for child in harness.board().children} == {2}
    assert harness.board().notice.generation == 2
    assert {child.name for child in harness.children()} == {"worker default.1", "worker default.2"}
    assert [child.last_exit for child in harness.children()] == ["status 0", "status 0"]
    what = [
        fact["what"] for fact in harness.facts() if fact["what"] in ("ready", "asked") and fact["pid"] not in keeper
    ]
    assert sorted(what) == ["asked"] * 2 + ["ready"] * 4
    # One who is asked to end notes it in its own time: perhaps after the next one is ready, never before its own.
    asked = [number for number, one in enumerate(what) if one == "asked"]
    assert [what[:number].count("ready") >= place for number, place in zip(asked, (3, 4), strict=True)] == [True] * 2
    assert len(harness.facts("canary ready")) == 1


def test_who_still_works_holds_nobody_up_and_ends_when_it_is_done(harness: MasterHarness) -> None:
    lingering = ("worker", "default", 2, "finishes_late")
    master = harness.serve(lingering, KEEPER)
    before = harness.ready()
    harness.next(TWO, KEEPER)
    master.send_signal(signal.SIGHUP)
    assert wait_for_reload(harness) == ""
    assert all(alive(pid) for pid in before)
    assert [child.boot for child in harness.children() if child.pid in before] == ["stopping", "stopping"]
    (harness.directory / "go").touch()
    until(lambda: not any(alive(pid) for pid in before))
    until(lambda: len(harness.children()) == 2)


def test_it_is_over_only_when_the_old_ones_take_nothing_more(harness: MasterHarness) -> None:
    late = ("worker", "default", 1, "confirms_late")
    master = harness.serve(late, KEEPER)
    (before,) = harness.ready()
    harness.next(late, KEEPER)
    master.send_signal(signal.SIGHUP)
    waits = f"waits until worker default.1, pid {before}, takes no more jobs"
    until(lambda: harness.board().notice.reloading == waits)
    assert (harness.board().notice.generation, harness.board().notice.done) == (2, 0)
    # It holds up no other reload, which ends together with it.
    harness.next(TWO, KEEPER)
    master.send_signal(signal.SIGHUP)
    until(lambda: harness.board().notice.generation == 3)
    until(lambda: harness.board().notice.reloading == waits)
    assert harness.board().notice.done == 0
    (harness.directory / "go").touch()
    assert wait_for_reload(harness, 2) == ""
    until(lambda: not alive(before))


def test_who_does_not_confirm_is_interrupted(harness: MasterHarness) -> None:
    master = harness.serve(("worker", "default", 1, "reads_no_messages"), KEEPER)
    harness.next(TWO, KEEPER)
    master.send_signal(signal.SIGHUP)
    assert wait_for_reload(harness) == ""
    until(lambda: len(harness.children()) == 2)


def test_reload_timeout_ends_what_takes_too_long(harness: MasterHarness) -> None:
    master = harness.serve(("worker", "default", 1, "stubborn"), KEEPER, reload_timeout=0.3)
    (before,) = harness.ready()
    harness.next(TWO, KEEPER, reload_timeout=0.3)
    master.send_signal(signal.SIGHUP)
    until(lambda: not alive(before))
    until(harness.deaths_told)
    assert harness.deaths_told()[0]["on"] == []


@pytest.mark.parametrize(
    ("canary", "why"),
    [
        ("canary_fails", "canary could not start: no module named shop"),
        ("canary_exits", "the canary ended before it was ready: status 7"),
        ("canary_never_ready", "the canary was not ready within 0.5 s"),
    ],
)
def test_without_a_canary_that_lives_nothing_changes(harness: MasterHarness, canary: str, why: str) -> None:
    master = harness.serve(TWO, KEEPER)
    before = harness.ready()
    # One that ends by itself has the usual time for it.
    limit = {"boot_limit": 0.5} if canary == "canary_never_ready" else {}
    harness.next(TWO, KEEPER, canary=canary, **limit)
    master.send_signal(signal.SIGHUP)
    assert why in wait_for_reload(harness)
    assert harness.ready() == before
    assert harness.board().notice.generation == 1
    harness.next(TWO, KEEPER)
    master.send_signal(signal.SIGHUP)
    assert wait_for_reload(harness, 2) == ""


def test_a_plan_that_cannot_be_read_changes_nothing(harness: MasterHarness) -> None:
    master = harness.serve(TWO, KEEPER)
    before = harness.ready()
    (harness.directory / "next").write_text("{")
    master.send_signal(signal.SIGHUP)
    assert wait_for_reload(harness).startswith("next: ")
    assert harness.ready() == before


@pytest.mark.parametrize("ending", ["cannot_boot", "exits_at_boot"])
def test_where_the_new_ones_cannot_come_up_the_old_stay(harness: MasterHarness, ending: str) -> None:
    """Although the canary lived."""
    master = harness.serve(("worker", "a", 1, "plain"), ("worker", "b", 2, "plain"), KEEPER)
    before = {child.pid for child in harness.children() if child.pool == "b"}
    harness.next(("worker", "a", 1, "plain"), ("worker", "b", 2, ending), KEEPER)
    master.send_signal(signal.SIGHUP)
    assert "worker b.1 " in wait_for_reload(harness)
    assert {child.pid for child in harness.children() if child.pool == "b" and child.boot == "ready"} == before
    until(lambda: len(harness.children()) == 3)
    assert harness.board().state == "serving"
    (killed,) = sorted(before)[:1]
    os.kill(killed, signal.SIGKILL)
    until(lambda: len([c for c in harness.children() if c.pool == "b" and c.boot == "ready"]) == 2)


def test_pools_come_go_grow_and_shrink(harness: MasterHarness) -> None:
    master = harness.serve(("worker", "a", 3, "plain"), ("worker", "b", 1, "plain"), KEEPER)
    harness.next(("worker", "a", 1, "plain"), ("worker", "c", 5, "busy"), KEEPER, cells=9)
    master.send_signal(signal.SIGHUP)
    assert wait_for_reload(harness) == ""
    until(lambda: sorted(child.pool for child in harness.children()) == ["a", *["c"] * 5])
    assert {len(child.running) for child in harness.children() if child.pool == "c"} == {2}
    assert [(pool.name, pool.workers) for pool in harness.board().notice.pools] == [("a", 1), ("c", 5)]


def test_reloads_that_are_asked_for_meanwhile_are_one_more(harness: MasterHarness) -> None:
    master = harness.serve(TWO, KEEPER)
    for _ in range(5):
        master.send_signal(signal.SIGHUP)
        time.sleep(0.01)
    until(lambda: harness.board().notice.done == harness.board().notice.asked > 0)
    assert harness.board().notice.generation <= 1 + harness.board().notice.asked
    until(lambda: len(harness.ready()) == len(harness.children()) == 2)


def test_a_stop_in_the_middle_of_a_reload_stops(harness: MasterHarness) -> None:
    chance = seeded_random()
    for _ in range(5):
        master = harness.serve(TWO, KEEPER)
        master.send_signal(signal.SIGHUP)
        time.sleep(chance.uniform(0, 0.05))
        master.send_signal(signal.SIGTERM)
        assert harness.wait_for_exit(master) == (0, "")
    assert not any(alive(fact["pid"]) for fact in harness.facts())


def test_a_stop_ends_a_canary_that_never_sings(harness: MasterHarness) -> None:
    master = harness.serve(TWO, KEEPER)
    harness.next(TWO, KEEPER, canary="canary_never_ready")
    master.send_signal(signal.SIGHUP)
    until(lambda: harness.children("canary"))
    master.send_signal(signal.SIGINT)
    assert harness.wait_for_exit(master) == (0, "")


def test_a_worker_killed_in_the_middle_of_a_reload_is_replaced_by_a_new_one(harness: MasterHarness) -> None:
    master = harness.serve(("worker", "default", 4, "plain"), KEEPER)
    master.send_signal(signal.SIGHUP)
    until(lambda: len(harness.facts("ready")) >= 5)
    for pid in harness.ready()[:2]:
        os.kill(pid, signal.SIGKILL)
    assert wait_for_reload(harness) == ""
    until(lambda: len(harness.ready()) == len(harness.children()) == 4)
    assert {child.generation for child in harness.children()} == {2}


def test_winch_ends_the_workers_and_a_reload_brings_them_back(harness: MasterHarness) -> None:
    master = harness.serve(TWO, KEEPER)
    master.send_signal(signal.SIGWINCH)
    until(lambda: not harness.children())
    assert harness.board().state == "resting"
    assert harness.ready("keeper")
    master.send_signal(signal.SIGHUP)
    assert wait_for_reload(harness) == ""
    until(lambda: len(harness.ready()) == 2)
    assert harness.board().state == "serving"


def test_ttin_and_ttou_change_the_count_by_one(harness: MasterHarness) -> None:
    master = harness.serve(TWO, KEEPER)
    master.send_signal(signal.SIGTTIN)
    until(lambda: len(harness.ready()) == 3)
    for count in (2, 1, 1):
        master.send_signal(signal.SIGTTOU)
        until(lambda: len(harness.ready()) == len(harness.children()) == count)  # noqa: B023
    assert [child.name for child in harness.children()] == ["worker default.1"]


def test_a_request_that_makes_no_sense_is_no_signal_for_one_more(harness: MasterHarness) -> None:
    master = harness.serve(TWO, KEEPER)
    before = harness.ready()
    for request in (b"nonsense", b'["default",-1]', b'["nobody",5]'):
        path = scale_path(harness.pid_file)
        path.write_bytes(request)
        master.send_signal(signal.SIGTTIN)
        until(lambda: not path.exists())  # noqa: B023
    master.send_signal(signal.SIGUSR1)
    until(lambda: "master pid" in harness.log())
    assert harness.ready() == before
    assert [pool.workers for pool in harness.board().notice.pools] == [2]


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(jobs=7), "7 jobs"),
        (Limits(age=0.2), "its age"),
        (Limits(memory=12_000_000), "12 MB of memory"),
    ],
)
def test_who_has_done_its_part_is_replaced_the_new_one_first(harness: MasterHarness, limits: Limits, why: str) -> None:
    harness.serve(("worker", "default", 2, "busy"), KEEPER, limits=limits)
    until(lambda: len(harness.facts("asked")) >= 4)
    assert f"asked to end, pid {harness.facts('asked')[0]['pid']}: {why}" in harness.log()
    there = 0
    for line in harness.log().partition(" serving")[2].splitlines():
        there += ("worker" in line and " ready, pid" in line) - ("worker" in line and " asked to end" in line)
        assert there >= 0, "one was to leave before another was there"


def test_who_takes_too_much_memory_is_killed_and_the_jobs_that_were_on_count_it(harness: MasterHarness) -> None:
    harness.serve(("worker", "default", 1, "busy"), KEEPER, limits=Limits(kill_memory=12_000_000))
    until(harness.deaths_told)
    assert harness.deaths_told()[0]["on"] == [FIRST.hex(), SECOND.hex()]
    assert (harness.deaths_told()[0]["stuck"], harness.deaths_told()[0]["why"]) == (
        [],
        "killed by the master: it took more memory than kill_memory",
    )
    named = f"{UUID(bytes=FIRST)} (shop.first), {UUID(bytes=SECOND)} (shop.zweites·)"
    assert f"12 MB of memory, more than kill_memory; jobs on, each counts a death: {named}\n" in harness.log()


def test_a_pool_that_cannot_come_up_is_told_and_the_others_go_on(harness: MasterHarness) -> None:
    harness.serve(("worker", "good", 1, "plain"), ("worker", "bad", 1, "cannot_boot_again"), KEEPER)
    good, bad = harness.ready()
    os.kill(bad, signal.SIGKILL)
    until(lambda: [pool.failed for pool in harness.board().notice.pools if pool.failed])
    (pool,) = [pool for pool in harness.board().notice.pools if pool.failed]
    assert (pool.name, pool.failed) == ("bad", "worker bad.1 could not start: gone bad")
    assert harness.ready() == [good]
