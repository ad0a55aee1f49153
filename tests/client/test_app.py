import asyncio
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tarry import App, BodyTooLarge, ConfigError, JobNotFound, StoreUnavailable, UnknownTask
from tarry.config.config import load
from tarry.process.loading import open_app
from tarry.store.memory.store import MemoryStore
from tarry.store.opening import KINDS, open_store
from tarry.store.rules.base import Store
from tarry.store.sqlite.store import SqliteStore
from tests.worker.bench import LIMIT, Bench


def test_an_unknown_name_is_told_with_the_known_ones(app: App) -> None:
    @app.task(name="shop.pay")
    def pay() -> None: ...

    with pytest.raises(UnknownTask, match=r"no task 'shop.pya' in this app; did you mean shop.pay\?"):
        app.enqueue("shop.pya")
    with pytest.raises(UnknownTask, match=r"no task 'xyz' in this app; it has: shop.pay"):
        app.enqueue("xyz")
    with pytest.raises(LookupError, match="it has: none"):
        asyncio.run(App(MemoryStore(), closures=True).aenqueue("x"))


def test_a_body_over_the_limit_is_refused_with_both_sizes(tmp_path: Path) -> None:
    (tmp_path / "tarry.toml").write_text('max_body = "100B"\nstore = "memory://"\n')
    app = App(closures=True)
    app.configure(load(tmp_path / "tarry.toml"))

    @app.task(name="keep")
    def keep(text: str) -> None: ...

    refusal = "keep: the arguments take 101 bytes; max_body is 100: store the data elsewhere and pass its id, or raise"
    for enqueue in (keep.enqueue, lambda text: keep.enqueue_many([(text,)])):
        with pytest.raises(BodyTooLarge, match=refusal):
            enqueue("x" * 97)
    with pytest.raises(BodyTooLarge, match=refusal):
        asyncio.run(keep.aenqueue("x" * 97))
    assert app.client.store.counts() == []
    assert len(keep.enqueue("x" * 96).record().body) == 100


def test_a_key_is_held_until_its_job_is_finished(app: App) -> None:
    @app.task(name="pay")
    def pay(n: int) -> None: ...

    @app.task(name="ship")
    def ship(n: int) -> None: ...

    first = pay.using(key="ann").enqueue(1)
    second = pay.using(key="ann", delay=60).enqueue(2)
    other = ship.using(key="ann").enqueue(1)
    third = asyncio.run(pay.using(key="ann").aenqueue(3))
    many = pay.using(key="ann").enqueue_many([(4,), (5,)])
    assert (first.is_new, second.is_new, third.is_new, other.is_new) == (True, False, False, True)
    assert {second, third, *many} == {first}
    assert [job.is_new for job in many] == [False, False]
    assert first.record().body == b"[1]"
    assert first.cancel()
    anew = pay.using(key="ann").enqueue(6)
    assert anew.is_new
    assert anew != first
    assert not first.retry(), "its key is another's now"


def test_keyed_calls_in_one_batch_are_one_job(app: App) -> None:
    @app.task(name="pay")
    def pay(n: int) -> None: ...

    jobs = pay.using(key="ann").enqueue_many([(1,), (2,), (3,)])
    assert [job.is_new for job in jobs] == [True, False, False]
    assert len(set(jobs)) == 1


def test_a_job_is_found_by_its_id(app: App) -> None:
    @app.task(name="pay")
    def pay(n: int) -> None: ...

    job = pay.enqueue(1)
    assert app.get(job.id) == job
    assert app.get(job.id.replace("-", "")) == job
    assert repr(job) == f"<Job {job.id}>"
    with pytest.raises(ValueError, match="'nonsense' is no job id"):
        app.get("nonsense")
    nobody = app.get("01890000-0000-7000-8000-000000000000")
    with pytest.raises(JobNotFound, match="no job 01890000"):
        assert nobody.state
    assert not nobody.cancel()
    assert not nobody.retry()


def test_cancel_and_retry_answer_whether_they_did_it(app: App) -> None:
    @app.task(name="pay")
    def pay() -> None: ...

    job = pay.using(delay=3600).enqueue()
    assert job.retry()
    assert job.state == "ready"
    assert job.cancel("no money")
    assert job.state == "cancelled"
    assert not job.cancel()

    async def twins() -> tuple[bool, str, bool]:
        return await job.aretry(), (await job.arecord()).state, await job.acancel()

    assert asyncio.run(twins()) == (True, "ready", True)


def test_the_state_can_be_awaited(app: App) -> None:
    @app.task(name="wait")
    def wait() -> None: ...

    job = wait.using(delay=3600).enqueue()
    assert asyncio.run(job.astate()) == job.state == "scheduled"


def test_nothing_is_opened_before_the_first_call(tmp_path: Path) -> None:
    app = App("sqlite:///missing/dir/tarry.db", closures=True)

    @app.task(name="pay")
    def pay() -> None: ...

    with pytest.raises(StoreUnavailable, match="does not exist; create it first"):
        pay.enqueue()
    (tmp_path / "missing" / "dir").mkdir(parents=True)
    assert pay.enqueue().state == "ready"
    app.close()
    assert pay.enqueue().state == "ready", "the next use opens it again"
    app.close()


def test_files_that_an_app_names_begin_where_its_settings_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named.py").write_text('from tarry import App\napp = App("sqlite:///jobs.db", outbox="out")\n')
    config = load(directory=tmp_path)
    # As in a daemon.
    monkeypatch.chdir("/")
    with closing(open_app("named:app", config)) as app:
        assert app.store_url == f"sqlite:///{tmp_path}/jobs.db"
        assert app.outbox is not None
        assert app.outbox.path == tmp_path / "out"


def test_the_store_is_what_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_STORE", f"sqlite:///{tmp_path}/elsewhere.db")
    app = App(closures=True)

    @app.task(name="pay")
    def pay() -> None: ...

    assert pay.enqueue().is_new
    app.close()
    assert (tmp_path / "elsewhere.db").exists()


def _forked(app: App) -> str:
    """The id of a job that a forked child enqueued."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            job = app.tasks["pay"].enqueue(2)
            again = asyncio.run(_aenqueued(app))
            os.write(writing, f"{job.id} {again}".encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading) as told:
        text = told.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


async def _aenqueued(app: App) -> str:
    return (await app.tasks["pay"].aenqueue(3)).id


def test_parent_and_forked_child_both_enqueue(app: App) -> None:
    @app.task(name="pay")
    def pay(n: int) -> None: ...

    before = pay.enqueue(1)
    asyncio.run(_aenqueued(app))
    ids = _forked(app).split()
    after = pay.enqueue(4)
    assert [app.get(id).record().body for id in (before.id, *ids, after.id)] == [b"[1]", b"[2]", b"[3]", b"[4]"]
    asyncio.run(_aenqueued(app))
    assert sum(tally.count for tally in app.client.store.counts()) == 6


def test_a_forked_child_opens_a_store_of_its_own_where_an_open_one_was_given(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "given.db")
    app = App(store, closures=True)

    @app.task(name="pay")
    def pay(n: int) -> None: ...

    pay.enqueue(1)
    ids = _forked(app).split()
    assert [job is not None for job in store.get([bytes.fromhex(id.replace("-", "")) for id in ids])] == [True, True]
    assert app.client.store is store
    app.close()


def test_a_forked_child_opens_a_given_store_with_its_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(url: str, durable: bool) -> Store:
        if url != "guarded://:secret@here":
            raise ConfigError("wrong password")
        store = SqliteStore(tmp_path / "given.db")
        store.url = "guarded://here"
        return store

    monkeypatch.setitem(KINDS, "guarded://", opened)
    app = App(open_store("guarded://:secret@here"), closures=True)

    @app.task(name="pay")
    def pay(n: int) -> None: ...

    pay.enqueue(1)
    ids = _forked(app).split()
    assert [app.get(id).record().body for id in ids] == [b"[2]", b"[3]"]
    app.close()


def test_a_worker_runs_what_forked_children_enqueue(bench: Bench) -> None:
    @bench.app.task(name="pay")
    def pay(n: int) -> int:
        return n

    bench.app.close()
    ids = _forked(bench.app).split()
    bench.work()
    assert [bench.app.get(id).result(LIMIT) for id in ids] == [2, 3]


_IMPORT = """
import sys, json
from tarry import *
print(json.dumps(sorted(sys.modules)))
"""
MOST_LOADED = 340
"""Modules, Python's and ours: they are what an import costs, and load on the machine does not change their number."""


NOT_LOADED = {"apsw", "sqlite3", "tqdm", "cronsim", "zoneinfo", "asyncio", "ssl", "http", "pydantic", "pytest"}
"""Drivers, servers, the console, and what only some apps use."""
OURS_NOT_LOADED = (
    "tarry.store.sqlite.store",
    "tarry.store.memory.store",
    "tarry.store.shards.location",
    "tarry.cli.",
    "tarry.runtime",
)


def test_importing_tarry_loads_little_and_no_driver() -> None:
    said = subprocess.run([sys.executable, "-c", _IMPORT], check=True, capture_output=True).stdout
    loaded = json.loads(said)
    assert len(loaded) < MOST_LOADED
    assert not NOT_LOADED & set(loaded)
    assert [name for name in loaded if name.startswith(OURS_NOT_LOADED)] == []
