"""`make demo`: the embedded default at work; on the way a worker is killed, and new workers take over.

Starts the master with the app in `stdlib.py`, puts a job per file of Python's standard library, some delayed, some
failing at first, two that never succeed; kills a worker with SIGKILL; reloads; then reads the ledger that the tasks
wrote and gives an account. Exit status 0 only if nothing was lost.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from examples import account
from examples.account import Account
from examples.stdlib import app, nothing, study

LIMIT = 55.0
ATTEMPTS = 4
BIGGEST = 100_000
BURST = 100
WORKERS = 2
EMPTY = 20_000
KILL_AT, RELOAD_AT = 0.3, 0.5
"""Parts of the jobs that have ended by then."""


class Demo:
    """One run, in a directory of its own."""

    def __init__(self, home: Path, quiet: bool) -> None:
        self._home = home
        self._quiet = quiet
        self._ledger = home / "ledger"
        self._due: dict[int, float] = {}
        self.empty = 0.0
        """Seconds from the first enqueue of an empty job to the last result."""
        os.environ |= {
            "DEMO_LEDGER": str(self._ledger),
            "TARRY_STORE": f"sqlite:///{home}/demo.db",
            "TARRY_POOLS__DEFAULT__WORKERS": str(WORKERS),
            "TARRY_MASTER__PID_FILE": str(home / "tarry.pid"),
            "TARRY_MASTER__LOG": str(home / "tarry.log"),
        }

    def run(self) -> Account:
        """From start to stop."""
        self._say(f"starting tarry: SQLite, {WORKERS} workers, in {self._home}")
        self._tarry("start", "--daemon")
        try:
            began = time.monotonic()
            self._put()
            self._watch(began + LIMIT)
            self._race()
        finally:
            self._tarry("stop", "--timeout", "5", check=False)
            self._tarry("quit", check=False)
        return account.of(self._due, account.read(self._ledger), ATTEMPTS)

    def _put(self) -> None:
        files = sorted(str(path) for path in Path(sysconfig.get_path("stdlib")).rglob("*.py") if _wanted(path))
        files += ["/no/such/file.py", "/no/other/file.py"]
        self._say(
            f"{len(files)} files to read, hash, compress and tokenize, a job each: every tenth later, every twentieth"
            " fails at first, two never succeed"
        )
        for start in range(0, len(files), BURST):
            calls = [
                (number, files[number], number % 20 == 7) for number in range(start, min(start + BURST, len(files)))
            ]
            for delay in (0, 1 + start / 1000):
                part = [call for call in calls if (call[0] % 10 == 3) == (delay > 0)]
                now = time.monotonic()
                study.using(delay=delay).enqueue_many(part)
                self._due |= {call[0]: now + delay for call in part}

    def _watch(self, until: float) -> None:
        killed = reloaded = False
        with tqdm(total=len(self._due), unit="job", disable=self._quiet, mininterval=0.5) as bar:
            while time.monotonic() < until:
                jobs = account.read(self._ledger)
                ended = sum(account.settled(jobs[number], ATTEMPTS) for number in self._due if number in jobs)
                bar.update(ended - bar.n)
                if not killed and ended >= KILL_AT * len(self._due):
                    killed = self._kill_a_worker(bar)
                if not reloaded and ended >= RELOAD_AT * len(self._due):
                    reloaded = self._reload(bar)
                if ended == len(self._due):
                    return
                time.sleep(0.1)

    def _race(self) -> None:
        """Jobs that do nothing, as fast as they go."""
        self._say(f"and {EMPTY:,} jobs that do nothing")
        began = time.monotonic()
        for _ in range(EMPTY // 1000):
            nothing.enqueue_many([()] * 1000)
        while _done(nothing.name) < EMPTY and time.monotonic() < began + LIMIT:
            time.sleep(0.01)
        self.empty = time.monotonic() - began

    def _kill_a_worker(self, bar: Any) -> bool:
        status = json.loads(self._tarry("--json", "status"))
        workers = [child for child in status["children"] if child["role"] == "worker" and child["running"]]
        if not workers:
            return False
        os.kill(workers[0]["pid"], signal.SIGKILL)
        if not self._quiet:
            bar.write(f"killed worker {workers[0]['pid']} with SIGKILL while it ran a job")
        return True

    def _reload(self, bar: Any) -> bool:
        told = self._tarry("reload").strip()
        if not self._quiet:
            bar.write(told)
        return True

    def _tarry(self, *words: str, check: bool = True) -> str:
        command = [sys.executable, "-m", "tarry", "-a", "examples.stdlib:app", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if check and done.returncode:
            raise SystemExit(f"tarry {words[0]} failed: {done.stderr.strip()}")
        return done.stdout

    def _say(self, line: str) -> None:
        if not self._quiet:
            print(line, flush=True)


def _done(task: str) -> int:
    """How many jobs of that task are done."""
    return sum(one.count for one in app.client.store.counts() if one.task == task and one.state == "done")


def _wanted(path: Path) -> bool:
    """Real code of a common size; the library's own tests hold files that no tokenizer takes."""
    strange = {"site-packages", "test", "tests", "lib2to3", "idlelib"}
    return strange.isdisjoint(path.parts) and 0 < path.stat().st_size < BIGGEST


def main() -> int:
    """0 only if nothing was lost."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quiet", action="store_true", help="print the account only")
    args = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="tarry-demo-") as home:
        demo = Demo(Path(home), args.quiet)
        told = demo.run()
        kept = "" if not told.lost else (Path(home) / "tarry.log").read_text()
    p50, p99, worst = told.start_ms
    print(
        f"put {told.put}, done {told.done}, retried {told.retried}, dead {told.dead} (2 expected), "
        f"run twice {told.run_twice}, lost {told.lost}"
    )
    print(
        f"the tasks' own work took {told.work:.1f} s and keeps {WORKERS} workers busy ({told.per_second:.0f} files/s),"
        f" so a job began {p50:.0f} ms after it was due (p99 {p99:.0f}, worst {worst:.0f})"
    )
    print(f"without work: {EMPTY:,} jobs enqueued and run in {demo.empty:.1f} s, {EMPTY / demo.empty:,.0f} jobs/s")
    print(kept, end="", file=sys.stderr)
    return 0 if told.lost == 0 and told.put > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
