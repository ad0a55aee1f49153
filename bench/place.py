"""An empty store to measure in, the app connected to it, and workers on it."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from bench.app import app
from bench.board import BOARD
from bench.crew import Crew, ask, crew, started
from tarry import App
from tarry.config.config import load
from tarry.errors import ConfigError
from tarry.model import lifecycle
from tarry.model.flow.node_ids import flow_of, is_node
from tarry.model.flow_row import FlowChange, Phase
from tarry.model.flow_rules import cancel_flow
from tarry.push.endpoint.endpoint_cells import FLOW_CELL
from tarry.runtime import control
from tarry.store.rules.base import Query, Store
from tarry.store.rules.flow_operating import ACTIVE, cancel_nodes
from tarry.store.rules.flows import FlowQuery

APP = "bench.app:app"
_SQLITE = "sqlite:///"
_TABLE = """\
app = "{app}"
store = {store}
[master]
pid_file = "bench.pid"
log = "bench.log"
log_level = "warning"
[pools.default]
workers = {workers}
threads = 1
async = {coroutines}
max_jobs = 0
"""


class Bench(Struct, frozen=True):
    """What all measures have in common. directory: where files may be left; it is removed at the end."""

    directory: Path
    url: str
    quick: bool
    launcher: str

    @property
    def kind(self) -> str:
        """sqlite, redis, postgresql or mysql."""
        scheme = self.url.partition(":")[0].partition("+")[0] or "sqlite"
        return {"rediss": "redis", "unix": "redis", "postgres": "postgresql", "mariadb": "mysql"}.get(scheme, scheme)

    def scaled(self, count: int) -> int:
        """A tenth of it with --quick."""
        return max(1, count // 10) if self.quick else count

    @contextlib.contextmanager
    def place(self, more: str = "", app: str = APP, shards: Sequence[str] = ()) -> "Iterator[Place]":
        """An empty store, an empty board, and the app connected; all gone afterwards. more: for tarry.toml. app: where
        workers find it. shards: URLs of empty stores to be used as one, which their maker removes."""
        BOARD.clear()
        with tempfile.TemporaryDirectory(dir=self.directory) as home:
            url = self.url or f"{_SQLITE}{home}/bench.db"
            place = Place(Path(home), url, self.launcher, more, app, shards)
            # What is refused is not ours to empty.
            place.open()
            try:
                yield place
            finally:
                place.close()

    def check(self) -> None:
        """ConfigError if the store cannot be used, or holds what is not ours."""
        if self.url.startswith("memory:"):
            raise ConfigError("--url memory: is not shared by processes; name a store that is")
        if self.url.startswith(_SQLITE) and Path(self.url.removeprefix(_SQLITE)).exists():
            raise ConfigError(f"--url {self.url}: that file exists; name one that the benchmark may make and remove")
        if self.url:
            with self.place():
                pass


class Place:
    """See `Bench.place`."""

    def __init__(
        self, home: Path, url: str, launcher: str, more: str = "", app: str = APP, shards: Sequence[str] = ()
    ) -> None:
        self._home, self._launcher, self._more, self._app = home, launcher, more, app
        self.url, self._shards = url, shards

    def open(self) -> None:
        """Connects the app; ConfigError if jobs are there that we did not put."""
        app.configure(load(self._settings(1, 100), {}))
        if app.client.store.find(Query(limit=1)):
            app.close()
            raise ConfigError(f"--url {self.url}: jobs are there; the benchmark needs an empty store")

    def close(self) -> None:
        """Empties the store and disconnects."""
        if self._shards:
            app.close()
        elif self.url.startswith(_SQLITE):
            app.close()
            path = Path(self.url.removeprefix(_SQLITE))
            for file in path.parent.glob(f"{path.name}*"):
                shutil.rmtree(file) if file.is_dir() else file.unlink()
        else:
            self.let_go()
            _empty(app.client.store)
            app.close()

    @contextlib.contextmanager
    def workers(self, count: int = 1, coroutines: int = 100) -> Iterator[Crew]:
        """So many worker processes, each known to be ready, on all queues; killed at the end."""
        settings = self._settings(count, coroutines)
        with crew(self._launcher, settings, count) as ours:
            yield ours

    @contextlib.contextmanager
    def started(self, count: int) -> Iterator[Crew]:
        """So many worker processes, from the moment of the command that starts them; killed at the end."""
        with started(self._launcher, self._settings(count, 100), count) as ours:
            yield ours

    @contextlib.contextmanager
    def connected(self) -> Iterator[App]:
        """An app of its own on this store, that knows the HTTP tasks of tarry.toml."""
        ours = App()
        try:
            ours.configure(load(self._home / "tarry.toml", {}))
            yield ours
        finally:
            ours.close()

    def ask(self, command: str) -> float:
        """See `bench.crew.ask`; of the master of this place."""
        return ask(self._home / "tarry.toml", command)

    def pids(self, role: str) -> list[int]:
        """The processes of that role that the master of this place has; none without a master."""
        board = control.status(self._home / "bench.pid")
        return [child.pid for child in board.children if child.role == role] if board else []

    def hold_back(self) -> None:
        """From now on nothing of the queue `default` starts; `let_go` ends that."""
        app.client.store.pause("default", True)

    def let_go(self) -> None:
        """What was held back may start."""
        app.client.store.pause("default", False)

    def _settings(self, workers: int, coroutines: int) -> Path:
        path = self._home / "tarry.toml"
        store = json.dumps([*self._shards] or self.url)
        path.write_text(_TABLE.format(app=self._app, store=store, workers=workers, coroutines=coroutines) + self._more)
        return path


def _empty(store: Store) -> None:
    _empty_flows(store)
    while jobs := store.find(Query(limit=1000)):
        now = store.time()
        running = [job for job in jobs if job.state == "running"]
        store.apply([lifecycle.cancel(job, lifecycle.DEFAULT, now) for job in running], now)
        store.apply([lifecycle.forget(job) for job in jobs if job not in running], now)
    for name in store.limits():
        store.limit(name, None)
    for name, cell in store.kv_list(FLOW_CELL).items():
        store.kv_cas(name, None, cell)


def _empty_flows(store: Store) -> None:
    flows, now = store.flows, store.time()
    # Nodes that are active would keep their flow for a while.
    while ids := {flow_of(job.id) for job in store.find(Query(states=ACTIVE, limit=1000)) if is_node(job.id)}:
        for id in ids:
            flows.change(cancel_flow(id), now)
            cancel_nodes(store, id, now)
    while found := flows.find(FlowQuery(limit=1000)):
        for flow in found:
            flows.change(FlowChange(flow.id, flow.phase, Phase.ENDED, at=0), now)
        while flows.tend(now):
            pass
