"""Reloads while programs put and take at both doors: no request fails, nothing is lost, and no job runs twice."""

import os
import signal

import pytest

from tarry.model.job import State
from tarry.store import ids
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
from tests.cli.project import Project, until
from tests.cli.serving import serve
from tests.servers.server import free_port


def reload_under_load(project: Project, times: int, pause: float) -> None:
    beanstalk = free_port()
    port = serve(project, beanstalk=f"127.0.0.1:{beanstalk}", processes=2)
    putters = [HttpPutter(port, pause, keeps) for keeps in (True, True, False)]
    takers = [HttpTaker(port, 0.0) for _ in range(2)]
    tubes: list[DoorProgram] = [BeanstalkPutter(beanstalk, pause) for _ in range(2)]
    workers = [BeanstalkTaker(beanstalk, 0.0) for _ in range(2)]
    everybody = [*putters, *takers, *tubes, *workers]
    with running(everybody):
        for number in range(1, times + 1):
            os.kill(project.board().pid, signal.SIGHUP)
            until(lambda wanted=number: project.board().notice.done >= wanted, 60)  # type: ignore[misc]
            assert project.board().notice.trouble == ""
    assert troubles(everybody) == []
    put, taken = acknowledged(putters), acknowledged(takers)
    bodies, worked = acknowledged(tubes), acknowledged(workers)
    assert min(map(len, (put, taken, bodies, worked))) > 10 * times
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


@pytest.mark.timeout(120)
def test_ten_reloads(project: Project) -> None:
    reload_under_load(project, 10, 0.01)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_hundred_reloads(project: Project) -> None:
    reload_under_load(project, 100, 0.004)
