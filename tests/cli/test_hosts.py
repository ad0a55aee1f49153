"""`tarry hosts`: what it asks a master for; the real masters are in tests/system."""

import getpass
import re
from pathlib import Path

import pytest

from tarry import App
from tarry.cli.main import parser
from tarry.errors import ResultTimeout, TooManyRequests, UsageError
from tarry.keeper.host_requests import MOST_OPEN, HostAct, HostRequest, HostRequests
from tarry.keeper.hosts import HostEntry
from tarry.model.job import State
from tarry.process.loading import CommandContext
from tarry.runtime import wait_notes
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.hosts import Host, WorkerFigures
from tarry.store.rules.base import Query, Want

OWNER = "web-1|1.1:8:9:1"
HOST = Host("web-1|1.1:7:9:0", "web-1", workers=[WorkerFigures("all", 1, OWNER)], worker_count=1, remote_control=True)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> App:
    """One with a job that runs on a host: that of all commands."""
    app = App(MemoryStore(), closures=True)

    @app.task(name="mail")
    def mail() -> None: ...

    mail.enqueue()
    store = app.client.store
    HostEntry(store, lambda: HOST).register_host()
    store.claim([Want("default", 0, 1)], 1, OWNER, 10**12, store.time())
    setup = CommandContext(None, None, tmp_path)
    setup.home = app
    monkeypatch.setattr(CommandContext, "of", lambda *_: setup)
    return app


def run(*words: str) -> int:
    args = parser(words[0]).parse_args(words)
    found: int = args.run(args)
    return found


def kill(app: App, *more: str) -> int:
    (job,) = app.client.store.find(Query())
    return run("jobs", "kill", app.get(job.id).id, "--timeout", "0.1", *more)


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_a_user_without_a_name_may_ask(app: App, monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """As in many containers."""

    def nobody() -> str:
        raise error("no such user")

    monkeypatch.setattr(getpass, "getuser", nobody)
    with pytest.raises(ResultTimeout):
        run("hosts", "reload", "web-1", "--timeout", "0.1")
    (found,) = HostRequests(app.client.store, HOST.instance).under_way()
    assert (found.act, found.by) == (HostAct.RELOAD, "")


def test_a_job_of_a_host_that_is_asked_for_too_much_stays_as_it_is(app: App) -> None:
    store, now = app.client.store, app.client.clock.now()
    for number in range(MOST_OPEN):
        HostRequests(store, HOST.instance).put(HostRequest(f"r{number}", HostAct.SCALE, now, pool="all"))
    with pytest.raises(TooManyRequests):
        kill(app, "--outcome", "cancelled")
    assert [job.state for job in store.find(Query())] == [State.RUNNING]


def test_a_wait_for_a_master_names_the_job_and_the_way_out(
    app: App, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (job,) = app.client.store.find(Query())
    monkeypatch.setattr(wait_notes, "TELL_EVERY", 0.0)
    monkeypatch.setattr(wait_notes, "WAY_OUT_AFTER", 0.0)
    with pytest.raises(ResultTimeout):
        kill(app)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"waiting for web-1: kill job {app.get(job.id).id} (mail), which has run for ")
    assert "--timeout 20" in second


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("scale", "web-1", "all"), "tarry hosts scale NAME POOL N"),
        (("stack", "web-1"), "tarry hosts stack NAME POOL.N"),
        (("scale", "web-1", "all", "1001"), "--workers: expected a whole number <= 1000"),
        (("scale", "web-1", "none", "1"), "no pool 'none': there are none"),
        (("stack", "web-1", "all.2"), "no worker 'all.2' on web-1: there are all.1"),
    ],
)
def test_what_cannot_be_asked_for_is_told(app: App, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        run("hosts", *words)
