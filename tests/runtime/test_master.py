import os
import re
import signal
import time
from uuid import UUID

import pytest

from tests.runtime.master_harness import KEEPER, MasterHarness, alive, state, until
from tests.runtime.scripted_roles import FIRST, SECOND

TWO = ("worker", "default", 2, "plain")
BOTH = [FIRST.hex(), SECOND.hex()]


def test_a_killed_worker_is_replaced_at_once(harness: MasterHarness) -> None:
    harness.serve(TWO, KEEPER)
    first, second = harness.ready()
    os.kill(first, signal.SIGKILL)
    until(lambda: len(harness.ready()) == 2 and first not in harness.ready())
    assert second in harness.ready()
    (again,) = [child for child in harness.children() if child.pid != second]
    assert again.last_exit == "killed (SIGKILL, perhaps out of memory)"
    assert again.name in ("worker default.1", "worker default.2")
    assert f"ended, pid {first}: killed (SIGKILL, perhaps out of memory)" in harness.log()


def test_the_keeper_learns_who_is_gone_and_what_it_was_at(harness: MasterHarness) -> None:
    harness.serve(("worker", "default", 1, "busy"), KEEPER)
    (pid,) = harness.ready()
    os.kill(pid, signal.SIGKILL)
    until(harness.deaths_told)
    assert harness.deaths_told() == [
        {"gone": f"owner-{pid}", "on": BOTH, "stuck": [], "why": "killed (SIGKILL, perhaps out of memory)"}
    ]


@pytest.mark.parametrize(
    ("number", "why", "counts_as"),
    [
        (signal.SIGKILL, "killed (SIGKILL, perhaps out of memory)", "killed"),
        (signal.SIGSEGV, "crashed (SIGSEGV)", "crash"),
        (signal.SIGABRT, "crashed (SIGABRT)", "crash"),
        (signal.SIGALRM, "ended by SIGALRM from outside", "signal"),
        (signal.SIGTERM, "ended by SIGTERM from outside", "signal"),
        (signal.SIGINT, "ended by SIGINT from outside", "signal"),
    ],
)
def test_how_a_process_ended_is_told_apart(
    harness: MasterHarness, number: signal.Signals, why: str, counts_as: str
) -> None:
    harness.serve(("worker", "default", 1, "plain"), KEEPER)
    (pid,) = harness.ready()
    os.kill(pid, number)
    until(lambda: harness.ready() not in ([], [pid]))
    assert f"ended, pid {pid}: {why}, running jobs: 0" in harness.log()
    assert [line["why"] for line in until(harness.deaths_told)] == [why]
    assert [child.last_exit for child in harness.children()] == [why]
    until(lambda: [pool.ended for pool in harness.board().notice.pools if pool.name] == [{counts_as: 1}])


def test_an_exit_with_0_is_no_excuse_for_what_it_was_at(harness: MasterHarness) -> None:
    harness.serve(("worker", "default", 1, "busy"), KEEPER)
    (pid,) = harness.ready()
    os.kill(pid, signal.SIGTERM)
    until(harness.deaths_told)
    assert harness.deaths_told() == [{"gone": f"owner-{pid}", "on": BOTH, "stuck": [], "why": "status 143"}]


def test_a_role_that_crashes_is_logged_with_its_traceback(harness: MasterHarness) -> None:
    harness.start(("worker", "default", 1, "crashes"))
    until(lambda: "ValueError: a bug in the role" in harness.log())


def test_what_the_keeper_did_not_answer_is_told_to_the_next(harness: MasterHarness) -> None:
    harness.serve(("worker", "default", 1, "busy"), ("keeper", "", 1, "keeper_mute_once"))
    (pid,), (keeper,) = harness.ready(), harness.ready("keeper")
    os.kill(pid, signal.SIGKILL)
    until(harness.deaths_told)
    os.kill(keeper, signal.SIGKILL)
    until(lambda: len(harness.deaths_told()) == 2)
    first, second = harness.facts("told")
    assert first["line"] == second["line"]
    assert first["pid"] == keeper != second["pid"]


def test_what_was_answered_is_not_told_again(harness: MasterHarness) -> None:
    harness.serve(("worker", "default", 1, "busy"), KEEPER)
    (pid,), (keeper,) = harness.ready(), harness.ready("keeper")
    os.kill(pid, signal.SIGKILL)
    until(harness.deaths_told)
    until(lambda: pid not in harness.ready() and harness.ready())
    os.kill(keeper, signal.SIGKILL)
    until(lambda: keeper not in harness.ready("keeper") and harness.ready("keeper"))
    os.kill(harness.ready()[0], signal.SIGKILL)
    until(lambda: len(harness.deaths_told()) == 2)
    assert [line["gone"] for line in harness.deaths_told()].count(f"owner-{pid}") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGUSR2, signal.SIGTERM])
def test_stop_asks_the_workers_then_the_keeper(harness: MasterHarness, number: signal.Signals) -> None:
    master = harness.serve(TWO, KEEPER)
    master.send_signal(number)
    assert harness.wait_for_exit(master) == (0, "")
    order = [fact["what"] for fact in harness.facts() if "asked" in fact["what"] or fact["what"] == "told"]
    assert [what for what in order if what != "told"] == ["asked", "asked", "keeper asked"]
    assert order[-1] == "keeper asked"
    assert len(harness.deaths_told()) == 2
    assert not harness.pid_file.exists()
    assert not list(harness.pid_file.parent.iterdir())


def test_quit_and_then_int_is_still_a_stop(harness: MasterHarness) -> None:
    master = harness.serve(("worker", "default", 1, "stubborn"), KEEPER)
    master.send_signal(signal.SIGQUIT)
    until(lambda: harness.board().state == "stopping")
    master.send_signal(signal.SIGINT)
    until(lambda: harness.log().count("received") == 2)
    assert harness.board().state == "stopping"
    assert alive(harness.children()[0].pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_one_kills_and_blames_no_job(harness: MasterHarness, number: signal.Signals) -> None:
    master = harness.serve(("worker", "default", 1, "stubborn"), KEEPER)
    (pid,) = harness.ready()
    master.send_signal(number)
    until(lambda: harness.facts("ignored"))
    assert alive(pid)
    master.send_signal(number)
    assert harness.wait_for_exit(master) == (0, "")
    assert harness.deaths_told() == [
        {"gone": f"owner-{pid}", "on": [], "stuck": [], "why": "killed by the master: it ends at once"}
    ]


@pytest.mark.parametrize("grace", [0.0, 0.5])
def test_term_kills_after_its_grace(harness: MasterHarness, grace: float) -> None:
    master = harness.serve(("worker", "default", 1, "stubborn"), KEEPER, grace=grace)
    began = time.monotonic()
    master.send_signal(signal.SIGTERM)
    assert harness.wait_for_exit(master) == (0, "")
    # The usual grace is 8 seconds.
    assert grace <= time.monotonic() - began < 8
    assert [line["on"] for line in harness.deaths_told()] == [[]]


def test_a_keeper_that_never_answers_does_not_hold_the_end_up(harness: MasterHarness) -> None:
    master = harness.serve(TWO, ("keeper", "", 1, "keeper_mute"))
    master.send_signal(signal.SIGINT)
    assert harness.wait_for_exit(master) == (0, "")
    assert "the keeper did not answer for owner-" in harness.log()


def test_a_keeper_that_dies_while_stopping_is_replaced_to_be_told(harness: MasterHarness) -> None:
    master = harness.serve(TWO, ("keeper", "", 1, "keeper_mute_once"))
    (keeper,) = harness.ready("keeper")
    master.send_signal(signal.SIGINT)
    until(lambda: len(harness.deaths_told()) == 2)
    os.kill(keeper, signal.SIGKILL)
    assert harness.wait_for_exit(master) == (0, "")
    assert len(harness.deaths_told()) == 4
    assert "did not answer" not in harness.log()


@pytest.mark.parametrize("ending", ["cannot_boot", "exits_at_boot"])
def test_a_child_that_cannot_boot_ends_the_first_start(harness: MasterHarness, ending: str) -> None:
    master = harness.start(TWO, ("worker", "slow", 1, ending), KEEPER)
    status, said = harness.wait_for_exit(master)
    assert status == 1
    reason = {"cannot_boot": "could not start: no module named shop\n", "exits_at_boot": "ended before "}[ending]
    assert said.startswith(f"worker slow.1 {reason}")
    assert not harness.facts("serving")
    assert not harness.pid_file.exists()
    assert not any(alive(fact["pid"]) for fact in harness.facts())


def test_a_child_that_is_never_ready_ends_the_first_start(harness: MasterHarness) -> None:
    master = harness.start(TWO, ("worker", "slow", 1, "never_ready"), boot_limit=3)
    # The others are ready by then, also on a busy machine.
    assert harness.wait_for_exit(master) == (1, "worker slow.1 not ready within 3 s\n")


@pytest.mark.parametrize(("role", "name"), [("worker", "worker default.1"), ("keeper", "keeper")])
def test_a_child_that_was_ready_and_dies_does_not_end_the_first_start(
    harness: MasterHarness, role: str, name: str
) -> None:
    """As of a job that it has already taken, while another process still starts."""
    master = harness.start(("worker", "default", 1, "plain"), ("worker", "slow", 1, "ready_late"), KEEPER)
    until(lambda: harness.facts("waiting"))
    # The board may say so before the master was told.
    until(lambda: f"{name} ready" in harness.log())
    (first,) = harness.ready(role)
    os.kill(first, signal.SIGKILL)
    until(lambda: harness.log().count(f"{name} ready") == 2 or master.poll() is not None)
    assert not harness.facts("serving")
    (harness.directory / "go").touch()
    until(lambda: harness.facts("serving") or master.poll() is not None)
    assert master.poll() is None, harness.log()


def test_told_to_stop_before_it_serves_it_has_not_failed(harness: MasterHarness) -> None:
    master = harness.start(("worker", "default", 1, "never_ready"), KEEPER)
    until(lambda: harness.facts("keeper"))
    master.send_signal(signal.SIGINT)
    assert harness.wait_for_exit(master) == (0, "")


def test_later_a_child_that_cannot_boot_ends_nothing(harness: MasterHarness) -> None:
    harness.serve(("worker", "default", 1, "cannot_boot_again"), KEEPER)
    os.kill(harness.ready()[0], signal.SIGKILL)
    until(lambda: harness.log().count("could not start: gone bad") > 2)
    assert harness.children()[0].last_exit == "status 3"
    assert harness.board().state == "serving"


def test_a_worker_that_dies_again_and_again_comes_back_ever_later(harness: MasterHarness) -> None:
    harness.serve(("worker", "default", 1, "crash_loop"), KEEPER)
    os.kill(harness.ready()[0], signal.SIGKILL)
    until(lambda: harness.log().count("another in") >= 5)
    delays = [float(text) for text in re.findall(r"another in ([\d.]+) s", harness.log())]
    assert delays[0] == 0.0
    for n, delay in enumerate(delays[1:5]):
        assert 0.1 * 2**n * 0.5 - 0.05 <= delay <= 0.1 * 2**n + 0.05


def test_a_process_that_is_killed_for_a_job_tells_first_where_its_threads_are(harness: MasterHarness) -> None:
    harness.serve(("worker", "default", 1, "overdue_and_tells"), KEEPER)
    (line,) = until(harness.deaths_told)
    told = 'Stack when it was killed (most recent call last):\n  File "shop.py", line 7 in first'
    assert (line["stacks"], line["why"]) == ({FIRST.hex(): told}, "killed by the master: a job did not end")


def test_a_job_past_its_time_is_killed_and_its_neighbours_are_not_blamed(harness: MasterHarness) -> None:
    harness.serve(("worker", "default", 1, "overdue"), KEEPER)
    until(harness.deaths_told)
    (line,) = harness.deaths_told()
    assert line.pop("stacks") == {}, "it did not say which thread it was"
    assert line.pop("epochs") == {FIRST.hex(): 3}
    assert line == {
        "gone": line["gone"],
        "on": [],
        "stuck": [FIRST.hex()],
        "why": "killed by the master: a job did not end",
    }
    until(harness.ready)
    assert f"job {UUID(bytes=FIRST)} (shop.first) still ran" in harness.log()
    assert " s after its start, past its timeout" in harness.log()


def test_what_a_job_started_dies_with_its_worker(harness: MasterHarness) -> None:
    harness.serve(("worker", "default", 1, "with_grandchild"), KEEPER)
    (worker,), grandchild = harness.ready(), harness.facts("grandchild")[0]["born"]
    assert alive(grandchild)
    os.kill(worker, signal.SIGKILL)
    until(lambda: not alive(grandchild))


def test_a_killed_master_leaves_no_orphan_and_another_may_start_meanwhile(harness: MasterHarness) -> None:
    master = harness.serve(("worker", "quick", 1, "busy"), ("worker", "slow", 1, "finishes_late"), KEEPER)
    (quick, slow), (keeper,) = harness.ready(), harness.ready("keeper")
    master.kill()
    master.wait()
    until(lambda: not alive(quick) and not alive(keeper))
    until(lambda: len(harness.facts("orphaned")) == 3)
    assert alive(slow)
    harness.serve(TWO, KEEPER)
    assert len(harness.ready()) == 2
    (harness.directory / "go").touch()
    until(lambda: not alive(slow))
    assert {fact["pid"] for fact in harness.facts("orphaned")} == {quick, slow, keeper}
    assert len(harness.ready()) == 2


def test_a_stopped_worker_survives_the_hangup_that_comes_with_its_masters_death(harness: MasterHarness) -> None:
    """The kernel sends HUP and CONT to a stopped process whose group is left without a parent."""
    master = harness.serve(("worker", "default", 1, "busy"))
    (pid,) = harness.ready()
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state(pid) == "T")
    master.kill()
    master.wait()
    until(lambda: harness.facts("orphaned"))
    assert harness.facts("orphaned")[0]["pid"] == pid


def test_signals_that_change_nothing_change_nothing(harness: MasterHarness) -> None:
    master = harness.serve(TWO, KEEPER)
    before = harness.ready()
    for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGUSR1):
        master.send_signal(number)
    until(lambda: "worker default.2 pid" in harness.log())
    assert "master pid" in harness.log()
    assert harness.ready() == before
    assert harness.board().state == "serving"


@pytest.mark.parametrize("ignores_int", [False, True])
def test_an_int_in_the_instant_of_birth_is_neither_deadly_nor_lost(harness: MasterHarness, ignores_int: bool) -> None:
    harness.start(("worker", "default", 4, "plain"), interrupt_at_birth=True, ignores_int=ignores_int)
    until(lambda: len(harness.facts("asked")) >= 4)
    assert "signal 2" not in harness.log()


def test_a_fork_that_fails_is_tried_again(harness: MasterHarness) -> None:
    harness.serve(TWO, KEEPER, forks_fail=[1, 2, 4])
    assert len(harness.ready()) == 2
    assert harness.log().count("Resource temporarily unavailable") == 3


def test_a_child_has_nothing_of_its_master(harness: MasterHarness) -> None:
    harness.serve(("worker", "default", 2, "notes_descriptors"), KEEPER)
    for fact in harness.facts("notes_descriptors"):
        kinds = sorted(re.sub(r"\d+", "N", link.rpartition("/")[2]) for link in fact["fds"])
        # The stacks are in a file that has no name.
        assert sum(kind.endswith(" (deleted)") for kind in kinds) == 1
        kinds = [kind for kind in kinds if not kind.endswith(" (deleted)")]
        assert kinds == ["facts", "log", "pipe:[N]", "pipe:[N]", "socket:[N]", "tarry.pid.board"]
        assert fact["mask"] == []
        assert fact["recorded"] == ["SIGHUP", "SIGINT", "SIGTERM", "SIGUSR1"]
        assert fact["stdin"] == "/dev/null"
        assert fact["group"] == fact["pid"]


def test_a_thread_left_behind_does_not_keep_a_child_nor_its_words(harness: MasterHarness) -> None:
    master = harness.serve(("worker", "default", 1, "leaves_thread"), KEEPER)
    master.send_signal(signal.SIGINT)
    said, _ = master.communicate(timeout=250)
    assert (master.returncode, said) == (0, "first words, last words")


def test_an_idle_master_sleeps(harness: MasterHarness) -> None:
    master = harness.serve(TWO, KEEPER)

    def wakeups() -> int:
        with open(f"/proc/{master.pid}/status") as status:
            return sum(int(line.split()[1]) for line in status if line.startswith("voluntary"))

    def sleeps() -> bool:
        """For a while it woke twice a second, as it always does. A busy machine adds wake-ups now and then."""
        before, began = wakeups(), time.monotonic()
        time.sleep(2.0)
        return wakeups() - before <= 2 * (time.monotonic() - began) + 1

    until(sleeps, 40.0)


def test_the_scoreboard_is_there_while_the_master_is_stopped(harness: MasterHarness) -> None:
    master = harness.serve(("worker", "default", 1, "busy"), KEEPER)
    master.send_signal(signal.SIGSTOP)
    until(lambda: state(master.pid) == "T")
    (worker,) = harness.children()
    assert (worker.processed, worker.failed, worker.rss) == (7, 2, 12345678)
    assert [(job.id, job.task, job.epoch) for job in worker.running] == [
        (str(UUID(bytes=FIRST)), "shop.first", 3),
        (str(UUID(bytes=SECOND)), "shop.zweites·", 4),
    ]
    assert 0 <= worker.running[0].seconds < 60
    assert 0 <= worker.heartbeat < 60
    master.send_signal(signal.SIGCONT)
