"""Reloads and upgrades while programs put and take at both doors: no request fails, nothing is lost, and no job runs
twice."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from tarry.model.job import State
from tarry.store.rules import ids
from tests.cli.doors_load import (
    BeanstalkPutter,
    BeanstalkTaker,
    DoorProgram,
    HttpPutter,
    HttpTaker,
    acknowledged,
    running,
    troubles,
)
from tests.cli.project import Project, alive, until
from tests.cli.serving import serve
from tests.servers.server import free_port


def reload(project: Project) -> None:
    before = project.board().notice.done
    os.kill(project.board().pid, signal.SIGHUP)
    until(lambda: project.board().notice.done > before, 60)
    assert project.board().notice.trouble == ""


def upgrade(project: Project) -> None:
    before = project.board().pid
    project.said("upgrade")
    until(lambda: not alive(before), 60)


def under_load(project: Project, change: Callable[[Project], None], times: int, rate: float) -> None:
    """rate: puts a second, of both doors together."""
    beanstalk = free_port()
    port = serve(project, beanstalk=f"127.0.0.1:{beanstalk}", processes=2)
    # Each of the five waits for its answer and the processor, too: the pause is a third of what would be enough.
    pause = 5 / rate / 3
    putters = [HttpPutter(port, pause, keeps) for keeps in (True, True, False)]
    takers = [HttpTaker(port, 0.0) for _ in range(2)]
    tubes: list[DoorProgram] = [BeanstalkPutter(beanstalk, pause) for _ in range(2)]
    workers = [BeanstalkTaker(beanstalk, 0.0) for _ in range(2)]
    everybody = [*putters, *takers, *tubes, *workers]
    began = time.monotonic()
    with running(everybody):
        for _ in range(times):
            change(project)
    seconds = time.monotonic() - began
    assert troubles(everybody) == []
    put, taken = acknowledged(putters), acknowledged(takers)
    bodies, worked = acknowledged(tubes), acknowledged(workers)
    assert min(map(len, (put, taken, bodies, worked))) > 10 * times
    print(f"{(len(put) + len(bodies)) / seconds:.0f} puts/s, {len(put)} and {len(bodies)} in {seconds:.0f} s")
    assert max(taken.values()) == max(worked.values()) == 1
    assert set(taken) <= set(put)
    assert set(worked) <= set(bodies)
    jobs = project.jobs()
    outside = {ids.text(job.id): job.state for job in jobs if job.queue == "outside"}
    assert set(outside) == set(put)
    assert {id for id, state in outside.items() if state is State.DONE} == set(taken)
    # A put that was sent again, since the connection was closed instead of an answer, is there once.
    tube = [(job.body.decode(), job.state) for job in jobs if job.queue == "default"]
    assert sorted(body for body, _ in tube) == sorted(bodies)
    assert {body for body, state in tube if state is State.DONE} == set(worked)


@pytest.mark.parametrize(("change", "times"), [(reload, 10), (upgrade, 3)])
def test_nobody_is_refused(project: Project, change: Callable[[Project], None], times: int) -> None:
    under_load(project, change, times, 250)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("change", "times"), [(reload, 100), (upgrade, 10)])
def test_nobody_is_refused_over_many(project: Project, change: Callable[[Project], None], times: int) -> None:
    under_load(project, change, times, 500)
