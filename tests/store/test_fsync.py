"""What is said to be kept is on the disk when the call returns: the last thing that happened to the log is a sync."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from tarry import App
from tarry.errors import ConfigError
from tarry.model.job import Job
from tarry.store.opening import open_store
from tarry.store.outbox import Outbox
from tarry.store.rules.base import Query
from tarry.store.rules.entry import Entry
from tarry.store.rules.ids import uuid7
from tarry.store.sqlite.store import SqliteStore
from tests.worker.bench import until


class Act(NamedTuple):
    """What a thread did with a file."""

    what: str
    name: str
    thread: int


Done = list[Act]


class _File(apsw.VFSFile):
    def __init__(self, base: str, done: Done, name: Any, flags: list[int]) -> None:
        super().__init__(base, name, flags)
        self._done = done
        self._end = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "").name

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._done.append(Act("write", self._end, threading.get_ident()))
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._done.append(Act("sync", self._end, threading.get_ident()))
        super().xSync(flags)


class _Disk(apsw.VFS):
    """The usual one, which keeps in mind what is done."""

    def __init__(self, base: str, done: Done) -> None:
        super().__init__("watched", base, makedefault=True)
        self._base, self._done = base, done

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self._base, self._done, name, flags)


@pytest.fixture
def done() -> Iterator[Done]:
    done: Done = []
    usual = str(apsw.vfs_details()[0]["zName"])
    disk = _Disk(usual, done)
    yield done
    disk.unregister()
    apsw.set_default_vfs(usual)


def one() -> Job:
    return Job(uuid7(), "mail", b"[]", "default")


def test_the_outbox_syncs_what_it_keeps(tmp_path: Path, done: Done) -> None:
    outbox = Outbox(tmp_path / "box.db")
    outbox.keep([Entry(one())])
    done.clear()
    outbox.keep([Entry(one())])
    assert_synced(done, "box.db-wal")
    outbox.close()


@pytest.mark.parametrize("put", [lambda store: store.insert([one()]), lambda store: store.pause("mail", True)])
def test_a_durable_store_syncs_what_it_is_told(tmp_path: Path, done: Done, put: Callable[[SqliteStore], Any]) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    store.insert([one()])
    done.clear()
    put(store)
    assert_synced(done, "jobs.db-wal")
    store.close()


def test_a_store_without_fsync_leaves_it_to_the_system(tmp_path: Path, done: Done) -> None:
    with closing(open_store(f"sqlite:///{tmp_path}/jobs.db?fsync=no")) as store:
        store.insert([one()])
        done.clear()
        store.insert([one()])
        assert {(act.what, act.name) for act in done} == {("write", "jobs.db-wal")}
        assert [fact.value for fact in store.diagnostics() if fact.name == "durability"] == [
            "journal wal, synchronous NORMAL"
        ]
    with closing(open_store(store.url)) as again:
        assert again.url == f"sqlite:///{tmp_path}/jobs.db?fsync=no"
        assert len(again.find(Query())) == 2


@pytest.mark.parametrize("options", ["fsync=perhaps", "fsync=", "sync=no", "shared=yes&fsync=1"])
def test_an_option_that_is_none_is_refused(tmp_path: Path, options: str) -> None:
    with pytest.raises(ConfigError, match=r"x\.db: .*fsync"):
        open_store(f"sqlite:///{tmp_path}/x.db?{options}")
    assert list(tmp_path.iterdir()) == []


def assert_synced(done: Done, log: str) -> None:
    of_the_log = [act.what for act in done if act.name == log]
    assert "write" in of_the_log
    assert of_the_log[-1] == "sync"


def test_what_leaves_the_outbox_is_on_the_disk(done: Done, tmp_path: Path) -> None:
    """A keeper's own store need not be durable."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = App(url, outbox=tmp_path / "outbox.db", closures=True)
    with closing(open_store(url, durable=False)) as store, closing(app):
        keeper = app.keeper(store)
        assert app.outbox is not None
        app.outbox.keep([Entry(one())])
        done.clear()
        keeper.tick()
        # Whichever of two threads has the turn: the keeper's, or that of the app's own client.
        until(lambda: app.outbox is not None and app.outbox.content().jobs == 0)
        keeper.close()
        # Removed only once the job is synced. The keeper's own writes go on beside it.
        forwarder, removed = next((act.thread, at) for at, act in enumerate(done) if act.name.startswith("outbox.db"))
        assert_synced([act for act in done[:removed] if act.thread == forwarder], "jobs.db-wal")
