"""One project under one fault: its Redis, its workers, its ledger."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import machine
from bench.beside_faults import tasks
from bench.beside_faults.broker import DURABLE, Broker
from bench.beside_faults.environment import HERE, ROOT
from bench.beside_faults.judge import POISON, RUNNING, STORED
from bench.beside_faults.network import CuttableNetwork
from bench.beside_faults.projects import HERE as MODULES
from bench.beside_faults.projects import Setting
from bench.beside_faults.workers import Workers
from bench.waiting import until
from tarry.testing.history_check import read_ledgers
from tarry.testing.history_events import Died, Ended, FinalState, HistoryEvent, Put, Started, StoreRead
from tarry.testing.ledger import Ledger

LIMIT = 120.0
"""Seconds after the fault for which a job may take to end."""
READY_WITHIN = 60.0
_LOST_FOR = 10.0
"""Seconds for which no process and no key has a job before it is given up."""
Deed = tuple[str, str, float, float | None]
"""A job's name, what it does, seconds, and after how many seconds."""


class Cell:
    """What a fault is made of."""

    def __init__(self, setting: Setting, python: Path, directory: Path) -> None:
        self.setting, self.python, self.directory = setting, python, directory
        directory.mkdir(parents=True)
        (directory / "marks").mkdir()
        self.ledger = Ledger(directory / "ledger", tasks.now)
        self.broker = Broker(directory / "redis", *DURABLE)
        self.broker.start()
        self.since = 0
        self._network: CuttableNetwork | None = None
        self._all: list[Workers] = []
        self._port = self.broker.port

    def close(self) -> None:
        for workers in self._all:
            workers.kill()
        if self._network:
            self._network.close()
        self.broker.stop()

    def cuttable(self) -> None:
        """Workers that are started later reach Redis by a network that jobs cut as they end."""
        self._network = CuttableNetwork(self.broker.port)
        self._port = self._network.port

    def put(self, deeds: Sequence[Deed]) -> None:
        """Returns once all are acknowledged, and in the ledger."""
        command = [str(self.python), "-m", "bench.beside_faults.put", f"{MODULES}.{self.setting.project}_app"]
        environment = self._environment(0, self.broker.port)
        subprocess.run(
            command, input=json.dumps(deeds), text=True, env=environment, check=True, cwd=self.directory, timeout=60
        )

    def work(self, *, ticks: bool = False, **more: str) -> Workers:
        """Starts workers; `more` are variables of theirs."""
        quiet = () if ticks else self.setting.without_ticks
        return self._run([(*self.setting.worker, *quiet)] * self.setting.workers, more)

    def schedule(self) -> None:
        """Starts what makes ticks, twice."""
        if self.setting.schedulers:
            self._run(self.setting.schedulers, {})
        else:
            self.work(ticks=True)
            self.work(ticks=True)

    def begin(self) -> None:
        """This is the moment of the fault."""
        self.since = tasks.now()

    def events(self) -> list[HistoryEvent]:
        return list(read_ledgers([self.ledger.path], [])) if self.ledger.path.exists() else []

    def running(self) -> list[str]:
        """Jobs whose last attempt has not ended, in a process that lives."""
        open_attempts: dict[str, Started] = {}
        for event in self.events():
            if isinstance(event, Started):
                open_attempts[event.job] = event
            elif isinstance(event, Ended):
                open_attempts.pop(event.job, None)
        alive = set(machine.alive({start.pid for start in open_attempts.values()}))
        return [job for job, start in open_attempts.items() if start.pid in alive]

    def wait_running(self, count: int) -> None:
        """Until so many jobs run. RuntimeError if that takes too long."""
        if not until(lambda: len(self.running()) >= count, READY_WITHIN, 0.05):
            raise RuntimeError(f"{self.setting.key}: no {count} jobs began: {self.log()}")

    def log(self) -> str:
        path = self.directory / "workers.log"
        return path.read_text(errors="replace")[-1500:] if path.exists() else "no log"

    def settle(self, limit: float = LIMIT, *, quiet: float = 3.0, whole: bool = False) -> None:
        """Waits until all jobs have ended, or what has not is in no process and in no key, or `limit` seconds from the
        fault are over; then what the store says goes to the ledger. quiet: seconds for a second run of what has ended.
        whole: also where all has ended before, as for poison."""
        end = self.since / 1e6 + limit
        gone_since: float | None = None
        while time.monotonic() < end:
            left = self._left(poison=whole)
            if not left:
                break
            held = set(self.running()) | self.broker.stored(left)
            gone_since = None if held & left else gone_since or time.monotonic()
            if gone_since and time.monotonic() - gone_since > _LOST_FOR:
                break
            time.sleep(0.5)
        time.sleep(quiet)
        self._read_store()

    def _read_store(self) -> None:
        left = self._left(poison=True)
        states = dict.fromkeys(left.intersection(self.running()), RUNNING) | dict.fromkeys(
            self.broker.stored(left), STORED
        )
        self.ledger.write(
            *(FinalState(job, state, 0) for job, state in sorted(states.items())), StoreRead(tasks.now(), False)
        )

    def _left(self, *, poison: bool) -> set[str]:
        events = self.events()
        ended = {event.job for event in events if isinstance(event, Ended)}
        puts = [event for event in events if isinstance(event, Put)]
        return {put.job for put in puts if poison or put.task not in POISON} - ended

    def _run(self, commands: Sequence[Sequence[str]], more: dict[str, str]) -> Workers:
        first = sum(len(workers.pids()) for workers in self._all)
        environments = [{**self._environment(first + number, self._port), **more} for number in range(len(commands))]
        full = [[str(self.python), *map(self._fill, command)] for command in commands]
        workers = Workers(full, environments, self.directory / "workers.log", self._record_deaths)
        self._all.append(workers)
        return workers

    def _record_deaths(self, pids: list[int]) -> None:
        self.ledger.write(*(Died(tasks.now(), pid=pid) for pid in pids))

    def _fill(self, word: str) -> str:
        return word.format(broker=f"redis://127.0.0.1:{self._port}/0", directory=self.directory, here=HERE, root=ROOT)

    def _environment(self, number: int, port: int) -> dict[str, str]:
        own = {
            name: value.format(directory=self.directory, number=number)
            for name, value in self.setting.environment.items()
        }
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "BESIDE_BROKER": f"redis://127.0.0.1:{port}/0",
            "BESIDE_SETTING": json.dumps(self.setting.app),
            tasks.LEDGER: str(self.ledger.path),
            tasks.SCRATCH: str(self.directory / "marks"),
            tasks.CUTTER: str(self._network.cutter if self._network else 0),
            **own,
        }


@contextlib.contextmanager
def open_cell(setting: Setting, python: Path, directory: Path) -> Iterator[Cell]:
    """A cell, whose processes are killed at the end."""
    cell = Cell(setting, python, directory)
    try:
        yield cell
    finally:
        cell.close()
