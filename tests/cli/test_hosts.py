"""`tarry hosts`: what it asks a master for; the real masters are in tests/system."""

import argparse
import getpass

import pytest

from tarry import App
from tarry.cli.host_requests import kill_jobs
from tarry.cli.hosts import _request
from tarry.errors import ResultTimeout, TooManyRequests
from tarry.keeper.host_requests import MOST_OPEN, HostAct, HostRequest, HostRequests
from tarry.keeper.hosts import HostEntry
from tarry.model.job import State
from tarry.runtime import control
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.hosts import Host, WorkerFigures
from tarry.store.rules.base import Query, Want

OWNER = "web-1|1.1:8:9:1"
HOST = Host("web-1|1.1:7:9:0", "web-1", workers=[WorkerFigures("all", 1, OWNER)], worker_count=1, remote_control=True)


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_a_user_without_a_name_may_ask(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """As in many containers."""

    def nobody() -> str:
        raise error("no such user")

    monkeypatch.setattr(getpass, "getuser", nobody)
    found = _request(App(MemoryStore()).client, HOST, argparse.Namespace(action="reload", words=["web-1"]))
    assert (found.act, found.by) == (HostAct.RELOAD, "")


def test_a_job_of_a_host_that_is_asked_for_too_much_stays_as_it_is() -> None:
    app = App(MemoryStore(), closures=True)

    @app.task(name="mail")
    def mail() -> None: ...

    mail.enqueue()
    store, now = app.client.store, app.client.clock.now()
    HostEntry(store, lambda: HOST).register_host()
    jobs = store.claim([Want("default", 0, 1)], 1, OWNER, 10**12, store.time())
    for number in range(MOST_OPEN):
        HostRequests(store, HOST.instance).put(HostRequest(f"r{number}", HostAct.SCALE, now, pool="all"))
    with pytest.raises(TooManyRequests):
        kill_jobs(app.client, jobs, argparse.Namespace(outcome="cancelled", timeout=0.1, json=False))
    assert [job.state for job in store.find(Query())] == [State.RUNNING]


def test_a_wait_for_a_master_names_the_job_and_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App(MemoryStore(), closures=True)

    @app.task(name="mail")
    def mail() -> None: ...

    id = mail.enqueue().id
    store = app.client.store
    HostEntry(store, lambda: HOST).register_host()
    jobs = store.claim([Want("default", 0, 1)], 1, OWNER, 10**12, store.time())
    monkeypatch.setattr(control, "TELL_EVERY", 0.0)
    monkeypatch.setattr(control, "WAY_OUT_AFTER", 0.0)
    with pytest.raises(ResultTimeout):
        kill_jobs(app.client, jobs, argparse.Namespace(outcome="failed", timeout=0.1, json=False))
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"waiting for web-1: kill job {id} (mail), which has run for ")
    assert "--timeout 20" in second
