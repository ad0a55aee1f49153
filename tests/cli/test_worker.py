"""`tarry worker`: a real process that hears real signals."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.project import until
from tests.system.scene import Scene


class Post(Scene):
    """Where workers stand, each started alone."""

    def hire(self, *words: str, before: tuple[str, ...] = ()) -> "subprocess.Popen[bytes]":
        with self.log_file.open("ab") as log:
            worker = subprocess.Popen(
                [*before, sys.executable, "-m", "tarry", "worker", *words],
                cwd=self.directory,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        self._masters.append(worker)
        return worker

    def said(self, text: str) -> Callable[[], bool]:  # type: ignore[override]
        return lambda: text in self.log()


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    post = Post(tmp_path)
    yield post
    post.close()


def test_it_runs_jobs_until_int_lets_it_finish(post: Post) -> None:
    worker = post.hire()
    done = [*post.put("app.await_stop"), *post.put("app.await_gate", "go"), *post.put("app.wait", "go")]
    post.begun(3)
    worker.send_signal(signal.SIGINT)
    until(lambda: post.job(done[0]).state == "done")
    left = post.put("app.add", 3, 4)
    post.open("go")
    assert worker.wait(30) == 0
    assert post.states() == dict.fromkeys(done, "done") | dict.fromkeys(left, "ready")
    first, *_, last = post.log().splitlines()
    assert first.endswith(f"tarry.worker[{worker.pid}] app:app: runs jobs, all queues")
    assert last.endswith("ended")


def test_term_lets_it_finish_within_its_grace(post: Post) -> None:
    worker = post.hire()
    jobs = [*post.put("app.await_gate", "go"), *post.put("app.wait", "go")]
    post.begun(2)
    worker.send_signal(signal.SIGTERM)
    post.open("go")
    assert worker.wait(30) == 0
    assert post.states() == dict.fromkeys(jobs, "done")


def test_term_gives_back_what_takes_longer(post: Post) -> None:
    post.settings("[master]\nterm_grace = 0.1\n")
    worker = post.hire()
    jobs = [*post.put("app.await_gate", "go"), *post.put("app.wait", "go")]
    post.begun(2)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0
    assert post.states() == dict.fromkeys(jobs, "ready")
    assert {(job.attempt, job.crashes) for job in post.jobs()} == {(1, 0)}
    assert {line.what for line in post.ledger()} == {"began", "CalledBack", "cancelled"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_is_now_also_for_what_heeds_nothing(post: Post, number: int) -> None:
    worker = post.hire()
    (job,) = post.put("app.cling")
    post.begun(1)
    worker.send_signal(number)
    until(post.said("takes nothing new, and finishes what it runs"))
    worker.send_signal(number)
    assert worker.wait(30) == 0
    assert (post.job(job).state, post.job(job).attempt) == ("ready", 1)
    assert post.log().splitlines()[-1].endswith("gave its jobs back and ends")


def test_usr1_says_how_it_stands(post: Post) -> None:
    worker = post.hire()
    post.put("app.add", 1, 2)
    until(post.all_finished)
    worker.send_signal(signal.SIGUSR1)
    until(post.said("processed 1, failed attempts 0, holds 0"))


def test_the_jobs_of_one_that_was_killed_are_run_by_the_next(post: Post) -> None:
    first = post.hire()
    (job,) = post.put("app.wait", "go")
    post.begun(1)
    first.send_signal(signal.SIGKILL)
    first.wait(30)
    assert post.job(job).state == "running"
    post.open("go")
    post.hire()
    until(post.all_finished)
    assert (post.job(job).state, post.job(job).attempt, post.job(job).crashes) == ("done", 2, 1)
    assert post.job(job).note == b'"attempt 2"'


def test_what_it_serves_and_how_much_at_once(post: Post) -> None:
    post.settings("[pools.mail]\nqueues = ['mail']\nthreads = 2\n")
    mails = post.put("app.wait", "go", queue="mail", times=3)
    others = post.put("app.wait", "go", queue="other", times=3)
    worker = post.hire()
    post.begun(2)
    assert [post.states()[id] for id in others] == ["ready"] * 3
    post.open("go")
    until(lambda: {post.states()[id] for id in mails} == {"done"})
    worker.send_signal(signal.SIGINT)
    assert worker.wait(30) == 0
    assert post.log().splitlines()[0].endswith("runs jobs, queues mail")
    post.hire("--queues", "other,more", "--threads", "0", "--async", "5")
    asyncs = post.put("app.await_gate", "go", queue="more", times=5)
    until(lambda: {post.states()[id] for id in asyncs} == {"done"})
    assert not {post.states()[id] for id in others} & {"done", "running"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--pool", "mial"), "no pool mial: choose with --pool among default"),
        (
            ("--threads", "0", "--async", "0"),
            "threads=0, coroutines=0: 0 or more of each, and 1 or more of one of them",
        ),
        (("--queues", "mail,,more"), "queues=['mail', '', 'more']: a name, several, or weights such as {\"mail\": 3}"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(post: Post, words: tuple[str, ...], told: str) -> None:
    assert post.refused("worker", *words).startswith(told)


def test_of_several_pools_one_is_chosen(post: Post) -> None:
    post.settings("[pools.mail]\nqueues = ['mail']\n[pools.rest]\nqueues = ['rest']\n")
    assert post.refused("worker") == "no pool default: choose with --pool among mail, rest"
    job = post.put("app.add", 1, 2, queue="rest")
    post.hire("--pool", "rest")
    until(post.all_finished)
    assert post.states() == dict.fromkeys(job, "done")


def test_a_store_that_cannot_be_opened_is_told_in_a_line(post: Post) -> None:
    post.settings('store = "sqlite:///missing/tarry.db"\n')
    assert "missing/tarry.db" in post.refused("worker").splitlines()[-1]


def test_without_an_app_it_says_how_to_name_one(post: Post) -> None:
    post.write("tarry.toml", "")
    assert post.refused("worker").startswith("no app is named: give -a module:app")


@pytest.mark.skipif(not shutil.which("unshare") or os.geteuid() != 0, reason="makes a pid namespace, as containers do")
def test_as_the_first_process_of_a_container(post: Post) -> None:
    worker = post.hire(before=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"))
    (job,) = post.put("app.wait", "go")
    post.begun(1)
    assert post.ledger()[0].pid == 1
    (inside,) = [pid for pid in post.processes() if pid != worker.pid]
    os.kill(inside, signal.SIGTERM)
    until(lambda: post.job(job).state == "running")
    post.open("go")
    assert worker.wait(30) == 0
    assert post.states() == {job: "done"}
    assert post.log().splitlines()[-1].endswith("ended")
