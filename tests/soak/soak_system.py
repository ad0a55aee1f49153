"""The system of a soak: a storm of few jobs, with doors, an endpoint, schedules, and clocks that are set."""

import contextlib
import io
import itertools
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import json
from msgspec.structs import replace

from tarry.store.opening import open_store
from tarry.store.rules.base import Store
from tarry.testing.history_check import HistoryEvent, LimitSet, Put, Violation, check, read_ledgers
from tarry.testing.ledger import read_end
from tarry.testing.leftovers import leftovers
from tests.cli.disk import Disk
from tests.cli.project import CommandResult, until
from tests.every_store.test_leftovers import forget_all
from tests.push.server import Connection, answer, ok
from tests.push.server import Server as Endpoint
from tests.servers.server import Server, free_port
from tests.system import storm
from tests.system.scene import CLOCKS_DIFFER
from tests.system.storm import Storm

HERE = Path(__file__).parent
KEPT = 120
"""Seconds for which what is finished is kept."""
PATIENCE = 600.0
"""Seconds for whatever is to come about, on a machine that does much besides."""
SECOND = 1_000_000
SURELY_KEPT = 30 * SECOND
"""What ended within this time before the end is in the store. Less than KEPT: after the store's clock was set ahead,
some go by the time before for a while."""
HALTED = 3.0
"""Seconds, at most, that something is halted or full."""
LEFT = 64 * 1024
"""Bytes that are left when the disk is filled."""
RATES = [LimitSet("task:soak_app.rated", 0, count=4, period=SECOND)]
LIMITS = [*storm.LIMITS, *RATES]
NOTICED_WITHIN = 15 * SECOND
"""A worker compares its clock with the store's every 5 s."""
SETTINGS = """
store = {store}
[master]
boot_timeout = 300
[pools.default]
lease = "60s"
workers = {workers}
threads = 3
max_age = 0
queues = {{ default = {weight}, other = 2, bounded = 1 }}
shares = [5, 3, 2]
[queues.bounded]
max_waiting = 40
{keep}
[server]
http = "127.0.0.1:{http}"
beanstalk = "127.0.0.1:{beanstalk}"
[push]
allow = ["127.0.0.1"]
[tasks.hook]
url = "{hook}"
schedule = {{ exponential = "200ms", max = "2s" }}
max_attempts = 20
"""
FAULTY = 0.1
"""This part of the answers of the endpoint is an error."""


class SoakStorm(Storm):
    """As a storm, of few jobs, which are kept for a short time. urls: of the store, or of its shards."""

    copied: ClassVar[dict[str, Path]] = Storm.copied | {
        name: HERE / name for name in ("soak_app.py", "soak_producer.py")
    }
    producer, producers = "soak_producer.py", 1
    ends_within = PATIENCE

    def __init__(
        self, directory: Path, urls: Sequence[str], server: Server | None, seed: int, slowness: float, disk: Disk | None
    ) -> None:
        self.urls, self.disk = urls, disk
        self.mishaps: list[str] = []
        """What could not be done to it."""
        self.excused: list[Violation] = []
        """What is no violation only since the store's server forgets what it accepted just before its death."""
        self.ports = {"http": free_port(), "beanstalk": free_port()}
        self._dice = random.Random(seed)
        self.endpoint = Endpoint()
        self.endpoint.__enter__()
        self.endpoint.says("/hook", self._answer)
        (directory / "ahead").write_text("0")
        (directory / "facts.json").write_bytes(json.encode(self.ports | {"slowness": slowness}))
        super().__init__(directory, urls[0], server, seed)
        self._seeds = itertools.count(seed + 1)

    async def _answer(self, line: Connection) -> None:
        await (answer(503) if self._dice.random() < FAULTY else ok)(line)

    def settings(self, text: str) -> None:
        self.write("tarry.toml", f'app = "soak_app:app"\n{text}')

    def configure(self) -> None:
        workers, weight = self.chance.randint(2, 3), self.chance.randint(1, 5)
        queues = "\n".join(
            f'[queues.{name}]\nkeep = {{ done = "{KEPT}s", dead = "{KEPT}s", bytes = "1GB" }}'
            for name in ("default", "other", "tube")
        )
        keep = f'keep = {{ done = "{KEPT}s", dead = "{KEPT}s", bytes = "1GB" }}\n{queues}'
        stores = json.encode(list(self.urls) if len(self.urls) > 1 else self.urls[0]).decode()
        self.settings(
            SETTINGS.format(
                store=stores, workers=workers, weight=weight, keep=keep, hook=self.endpoint.url("/hook"), **self.ports
            )
        )

    def start(self, *words: object) -> "subprocess.Popen[bytes]":
        # Started and not forked from the tests' own process: else the memory of that counts.
        self.is_real, self.serves_within = True, PATIENCE
        return super().start(*words)

    def tarry(self, *words: object, stdin: str = "", limit: float = PATIENCE, **environ: str) -> CommandResult:
        return super().tarry(*words, stdin=stdin, limit=limit, **environ)

    @contextlib.contextmanager
    def store(self) -> Iterator[Store]:
        with contextlib.closing(open_store(list(self.urls))) as store:
            yield store

    def now(self) -> int:
        return super().now() + int((self.directory / "ahead").read_text())

    @property
    def producer_process(self) -> "subprocess.Popen[bytes]":
        return self._producers[0]

    # What happens to it

    def troubles(self) -> dict[Callable[[], None], int]:
        """All that there are, with their weights."""
        return {
            self.kill_worker: 4, self.kill_keeper: 2, self.kill_server: 2, self.kill_producer: 2, self.kill_master: 1,
            self.kill_all: 1, self.reload: 3, self.halt_worker: 2, **self._of_store(),
        }  # fmt: skip

    def calm_troubles(self) -> dict[Callable[[], None], int]:
        """Those that leave the master, the keeper, the server, the store's server and the oldest worker at work."""
        spared = {self.kill_keeper, self.kill_server, self.kill_master, self.kill_all, self.reload, self.kill_store}
        return {trouble: weight for trouble, weight in self.troubles().items() if trouble not in spared}

    def late_troubles(self) -> dict[Callable[[], None], int]:
        """Those that leave the master at work."""
        spared = {self.kill_master, self.kill_all}
        return {trouble: weight for trouble, weight in self.troubles().items() if trouble not in spared}

    def _of_store(self) -> dict[Callable[[], None], int]:
        if self.server is not None:
            return {self.kill_store: 2, self.halt_store: 2}
        return {self.set_clock: 1} | ({self.fill_disk: 2} if self.disk is not None else {})

    def kill_worker(self) -> None:
        """The youngest."""
        if len(workers := self.children()) > 1:
            self._kill([max(workers, key=lambda child: child.started).pid])

    def kill_master(self) -> None:
        self._kill([self.master.pid])
        self.master.wait()
        # A server that was still starting has the sockets until it is ready, and then ends.
        producer = self.producer_process.pid
        until(lambda: not [pid for pid in self.processes() if pid != producer], PATIENCE)
        self.master = self.serve()

    def kill_server(self) -> None:
        self._kill(self.pids("server"))

    def kill_producer(self) -> None:
        self._kill([self.producer_process.pid])
        self.producer_process.wait()
        self._producers[0] = self._produce(next(self._seeds))

    def halt_worker(self) -> None:
        """For less than a lease."""
        if pids := self.pids():
            pid = self.chance.choice(pids)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(self.chance.uniform(0.5, HALTED))
                os.kill(pid, signal.SIGCONT)

    def set_clock(self) -> None:
        """The store's clock, ahead: back, and nobody could compare the times of the ledgers.

        Until all workers know it, those who go by the time before seem to those who do not to come from a clock that
        was set back, and no rate holds.
        """
        self.told += [replace(rate, at=self.now(), count=0) for rate in RATES]
        ahead = int((self.directory / "ahead").read_text()) + round(self.chance.uniform(0.2, 60) * SECOND)
        self.write("ahead.new", str(ahead)).rename(self.directory / "ahead")
        self.told += [replace(rate, at=self.now() + NOTICED_WITHIN) for rate in RATES]

    def fill_disk(self) -> None:
        assert self.disk is not None
        filler = self.disk.fill(but=LEFT)
        time.sleep(self.chance.uniform(1, HALTED))
        filler.unlink()

    # What must hold

    def finish(self) -> None:
        """All jobs end, and then the master."""
        self.said("schedules", "pause", "soak_app.tick")
        super().finish()

    def violations(self) -> list[Violation | str]:
        """What is not as promised, once all is over and the master is gone."""
        skipped = list[str]()
        history = list(read_ledgers([self.directory / "history", self.directory / "observed"], skipped))
        with self.store() as store:
            end = [*read_end(store, kept=SURELY_KEPT), *leftovers(store)]
            forget_all(store)
            end += leftovers(store, is_empty=True)
        events, self.excused = [*history, *self.told, *LIMITS, *end], []
        found = check(events, tolerance=CLOCKS_DIFFER, excused=self.excused)
        return [*found, *self._undelivered(history), *self._words_of_log()]

    def _undelivered(self, history: Iterable[HistoryEvent]) -> Iterator[str]:
        arrived = {seen.header("webhook-id") for seen in list(self.endpoint.seen)}
        for event in history:
            if isinstance(event, Put) and event.task == "hook" and event.job not in arrived:
                yield f"undelivered: {event}"

    def _words_of_log(self) -> Iterator[str]:
        for line in self.log().splitlines():
            if any(word in line for word in ("Traceback", "CRITICAL", "the pump broke", "limits did not count")):
                yield f"log: {line}"

    def close(self) -> None:
        # Its log stays in its file.
        with contextlib.redirect_stdout(io.StringIO()):
            super().close()
        self.endpoint.__exit__(None, None, None)
