"""Stories with a real master, of which one process is struck; then a fresh master goes on with what it left."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import json

from tarry.model.job import State
from tarry.process.connection_sockets import socket_pids
from tarry.runtime import control
from tarry.runtime.board.reader import Board
from tarry.runtime.upgrades import write_request
from tarry.store.rules.base import Query
from tarry.testing.history_check import Died, HistoryEvent, Started, check, read_ledgers
from tarry.testing.ledger import Ledger, read_end
from tarry.testing.leftovers import leftovers
from tests.cli.forked import ModuleProcess
from tests.cli.project import Project, alive, until
from tests.every_store.test_leftovers import forget_all
from tests.kill_points.doors import DoorClient, Gone
from tests.kill_points.points import BREAKPOINT, Point
from tests.kill_points.struck import CALLS, ORDER, STRUCK, Order
from tests.kill_points.taking_over import wrong_files

ACTIVE = (State.SCHEDULED, State.READY, State.RUNNING)
CLOCKS_DIFFER = 10_000
"""Microseconds by which a client's clock may be behind on a busy machine: a round trip to the store."""
LIMIT = 60.0
"""Seconds for whatever is to come about."""
APP = """
from pathlib import Path
from tarry import App
from tarry.testing.ledger import Ledger

app = App()
app.middleware("run")(Ledger(Path(__file__).with_name("ledger")).run)

@app.task(name="note")
def note(what):
    return what
"""
MODULES = "tarry.testing.ledger tarry.alert.alert_settings"
"""Which the children of a master import beside what the fork server has already."""
SETTINGS = """
[pools.default]
workers = 1
threads = 1
queues = ["default"]
[server]
http = "unix:run/http.sock"
beanstalk = "unix:run/tube.sock"
"""


class Host(Project):
    """A directory with a master whose processes may be struck, and with the ledger of what was acknowledged."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, APP, SETTINGS)
        self.ledger = Ledger(directory / "ledger")
        self.write("ledger", "")

    def start(self, *words: object) -> Any:
        with self.log_file.open("ab") as log:
            master = ModuleProcess(
                "tests.kill_points.struck", ["start"], cwd=self.directory, env=self.environ, stdout=log, stderr=log
            )
        self._masters.append(master)
        return master

    def note(self, what: str) -> None:
        """Puts a job, without a door."""
        self.ledger.put(*self.put("note", what))

    def record_deaths(self) -> None:
        """Of the workers that are gone: each died once it had begun its last attempt, if that has no end."""
        last = {event.pid: event.at for event in self.history() if isinstance(event, Started)}
        self.ledger.write(*(Died(at, pid=pid) for pid, at in last.items() if not alive(pid)))

    def history(self) -> list[HistoryEvent]:
        """What the ledger says so far."""
        return list(read_ledgers([self.ledger.path], []))

    def client(self) -> DoorClient:
        """Of a server that is ready. Gone."""
        until(lambda: self.pids("server"), LIMIT)
        return DoorClient(self.pid_file.parent, self.ledger)

    @property
    def was_struck(self) -> bool:
        """Whether the process was killed at its point."""
        return STRUCK.decode() in self.log()

    def is_serving(self) -> bool:
        """Whether a master is there, and has nothing else to do."""
        board = control.status(self.pid_file)
        return bool(board and board.alive and board.state == "serving" and not board.notice.upgrading)

    def has_begun(self) -> bool:
        """Starts a master, and waits until it serves. False: a process that dies at once makes it give up."""
        master = self.start()
        until(lambda: self.is_serving() or master.poll() is not None, LIMIT)
        return master.poll() is None

    def signal(self, number: int) -> None:
        """To the master, if it is there."""
        board = control.status(self.pid_file)
        if board is not None and board.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(board.pid, number)

    def wait_for(self, has_come: Callable[[Board], Any]) -> None:
        """Until the board shows it, or there is no master."""

        def is_over() -> bool:
            board = control.status(self.pid_file)
            return board is None or not board.alive or bool(has_come(board))

        until(is_over, LIMIT)

    def come_to_rest(self) -> None:
        """Waits until a master serves, or nobody is there: what a master left that died ends by itself."""
        until(lambda: self.is_serving() or not self.processes(), LIMIT)

    def end(self) -> None:
        """The master that serves, if any, ends gracefully."""
        self.signal(signal.SIGINT)
        self.wait_for(lambda board: False)
        until(lambda: not self.processes(), LIMIT)


class Scene(NamedTuple):
    """who: the process that is struck. run: what is done until it is over, or nobody is there any more."""

    who: str
    run: Callable[[Host], None]


def use_doors(host: Host) -> None:
    """A client uses both doors of the server."""
    if not host.has_begun():
        return
    with contextlib.suppress(Gone), contextlib.closing(host.client()) as client:
        client.use_all()


def reload(host: Host) -> None:
    """Jobs are put and run while the master reloads and makes one worker more."""
    if not host.has_begun():
        return
    host.note("before")
    host.signal(signal.SIGHUP)
    host.note("meanwhile")
    host.wait_for(lambda board: board.notice.done == 1)
    host.signal(signal.SIGTTIN)
    host.note("after")
    host.wait_for(lambda board: sum(child.role == "worker" and child.boot == "ready" for child in board.children) == 2)


def upgrade(host: Host) -> None:
    """Jobs are put and run while another master takes the place of the first."""
    if not host.has_begun():
        return
    host.note("before")
    old = host.board().pid
    write_request(host.pid_file)
    host.signal(signal.SIGHUP)
    host.note("meanwhile")
    host.wait_for(lambda board: board.notice.upgrade_trouble or (board.pid != old and not alive(old)))
    host.note("after")


SCENES = {
    "doors": Scene("server", use_doors),
    "worker": Scene("worker", reload),
    "reload": Scene("master", reload),
    "upgrade": Scene("master", upgrade),
    "successor": Scene("successor", upgrade),
}


def answer(point: Point, place: Path) -> dict[str, Any]:
    """What came of it, as `tests.kill_points.points.Tries` tells."""
    host, scene = Host(place), SCENES[point.story]
    fault = None if point.fault == BREAKPOINT else point.fault
    host.write(str(ORDER), json.encode(Order(scene.who, point.at, fault)).decode())
    try:
        return _tried(host, scene, point)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}\n{host.log()[-4000:]}"}
    finally:
        host.kill_all()


def _tried(host: Host, scene: Scene, point: Point) -> dict[str, Any]:
    scene.run(host)
    if host.was_struck and point.at % 2:
        # Then nothing is left that could help.
        host.kill_all()
    host.record_deaths()
    host.come_to_rest()
    host.end()
    # A server removes the sockets of those that are gone: a process is there until somebody has asked for its status.
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in socket_pids(host.pid_file)), LIMIT)
    killed = host.was_struck
    ended = {"killed": True} if killed else {"calls": int((host.directory / CALLS).read_text())}
    return ended | {"wrong": list(take_over(host))}


def take_over(host: Host) -> Iterator[str]:
    """A fresh master goes on to the end; what is wrong then."""
    host.serve()
    client = host.client()
    until(lambda: not client.take_all() and _is_all_over(host), LIMIT)
    client.close()
    host.end()
    # The file of stores is for the next start.
    left = sorted(path.name for path in host.pid_file.parent.iterdir() if path.suffix != ".stores")
    yield from (f"{name} is left of a master that has ended" for name in left)
    yield from _wrong_history(host)
    yield from wrong_files(host.directory)


def _is_all_over(host: Host) -> bool:
    with host.store() as store:
        return not store.find(Query(states=ACTIVE, limit=1))


def _wrong_history(host: Host) -> Iterator[str]:
    with host.store() as store:
        yield from map(str, check([*host.history(), *read_end(store)], tolerance=CLOCKS_DIFFER))
        yield from map(str, leftovers(store))
        forget_all(store)
        yield from map(str, leftovers(store, is_empty=True))
