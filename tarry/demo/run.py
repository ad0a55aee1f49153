"""One run of the demo. On the way a worker is killed, and new workers take over from the old ones.

It starts a master with the app in `tasks.py`, puts a job per file of Python's standard library, some delayed, some
failing at first, two that never succeed; kills a worker with SIGKILL; reloads; then reads the ledger that the tasks
wrote.
"""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tarry.config.config import load
from tarry.demo.account import Account, has_ended, make_account, read
from tarry.demo.tasks import app, nothing, study
from tarry.errors import TarryError

LIMIT = 55.0
"""Seconds after which the demo waits no longer."""
ATTEMPTS = 4
BIGGEST = 100_000
BURST = 100
WORKERS = 2
EMPTY = 20_000
KILL_AT, RELOAD_AT = 0.3, 0.5
"""Parts of the jobs that have ended by then."""
APP = "tarry.demo.tasks:app"
SETTINGS = f"""\
app = "{APP}"
store = "sqlite:///demo.db"

[master]
pid_file = "tarry.pid"
log = "tarry.log"

[pools.default]
workers = {WORKERS}
"""


class Demo:
    """One run, in a directory of its own. say: shows a line of what happens; quiet: shows no progress bar; most: how
    many files it takes."""

    def __init__(self, home: Path, say: Callable[[str], None], quiet: bool, most: int | None = None) -> None:
        self._home, self._say, self._most = home, say, most
        # None: no bar where nobody sees it move.
        self._hide_bar = True if quiet else None
        self._settings = home / "tarry.toml"
        self._ledger = home / "ledger"
        # Settings of the user's own project are not for the demo.
        self._environ = {name: text for name, text in os.environ.items() if not name.startswith("TARRY_")}
        self._environ["DEMO_LEDGER"] = str(self._ledger)
        self._due: dict[int, float] = {}
        self.empty = 0.0
        """Seconds from the first enqueue of an empty job to the last result."""

    def run(self) -> Account:
        """From start to stop. TarryError: a command fails, or there are no files to work on."""
        self._settings.write_text(SETTINGS, encoding="utf-8")
        app.configure(load(self._settings, self._environ))
        files = find_files(Path(sysconfig.get_path("stdlib")), self._most)
        self._say(f"starting tarry: SQLite, {WORKERS} workers, in {self._home}")
        # In the foreground: a daemon could outlive a demo that is ended before the daemon has its pid file.
        master = subprocess.Popen(
            self._command("start"), env=self._environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            self._await_start(master)
            began = time.monotonic()
            self._put(files)
            self._watch(began + LIMIT)
            self._race()
        finally:
            _end(master)
        return make_account(self._due, read(self._ledger), ATTEMPTS)

    def log(self) -> str:
        """What master and workers wrote."""
        file = self._home / "tarry.log"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def _await_start(self, master: "subprocess.Popen[bytes]") -> None:
        """Returns once the workers are ready."""
        end = time.monotonic() + LIMIT
        while master.poll() is None and time.monotonic() < end:
            status = json.loads(self._tarry("--json", "status", check=False) or "{}")
            if status.get("state") == "serving":
                return
            time.sleep(0.05)
        raise TarryError(f"the demo's master does not start: {self.log().strip() or 'it says nothing'}")

    def _put(self, files: list[str]) -> None:
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
        with tqdm(total=len(self._due), unit="job", disable=self._hide_bar, mininterval=0.5) as bar:
            while time.monotonic() < until:
                jobs = read(self._ledger)
                ended = sum(has_ended(jobs[number], ATTEMPTS) for number in self._due if number in jobs)
                bar.update(ended - bar.n)
                if not killed and ended >= KILL_AT * len(self._due):
                    killed = self._kill_a_worker(bar, only_busy=ended < RELOAD_AT * len(self._due))
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
        while _count_done(nothing.name) < EMPTY and time.monotonic() < began + LIMIT:
            time.sleep(0.01)
        self.empty = time.monotonic() - began

    def _kill_a_worker(self, bar: Any, only_busy: bool) -> bool:
        status = json.loads(self._tarry("--json", "status"))
        workers = [child for child in status["children"] if child["role"] == "worker" and child["pid"]]
        # The moment of a look may be between two short jobs of each worker, several times in a row.
        busy = [child for child in workers if child["running"]]
        chosen = busy or ([] if only_busy else workers)
        if not chosen:
            return False
        os.kill(chosen[0]["pid"], signal.SIGKILL)
        when = " while it ran a job" if busy else ", between two jobs"
        self._say_above(bar, f"killed worker {chosen[0]['pid']} with SIGKILL{when}")
        return True

    def _reload(self, bar: Any) -> bool:
        self._say_above(bar, self._tarry("reload").strip())
        return True

    def _say_above(self, bar: Any, line: str) -> None:
        bar.clear()
        self._say(line)
        bar.refresh()

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "tarry", "-c", str(self._settings), *words]

    def _tarry(self, *words: str, check: bool = True) -> str:
        ended = subprocess.run(
            self._command(*words), env=self._environ, capture_output=True, text=True, check=False, timeout=60
        )
        if check and ended.returncode:
            raise TarryError(f"tarry {words[0]} failed: {ended.stderr.strip()}")
        return ended.stdout


def _end(master: "subprocess.Popen[bytes]") -> None:
    """Stops it; a second signal has it end at once."""
    for number, seconds in ((signal.SIGINT, 5), (signal.SIGTERM, 5), (signal.SIGTERM, 5), (signal.SIGKILL, None)):
        master.send_signal(number)
        try:
            master.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            continue


def find_files(library: Path, most: int | None = None) -> list[str]:
    """The files to work on, of a standard library, and two that are not there."""
    files = sorted(str(path) for path in library.rglob("*.py") if _is_wanted(path, library))[:most]
    if not files:
        raise TarryError("this Python has no files of its standard library to work on; use another Python")
    return [*files, "/no/such/file.py", "/no/other/file.py"]


def _is_wanted(path: Path, library: Path) -> bool:
    """Real code of a common size; the library's own tests hold files that no tokenizer takes."""
    strange = {"site-packages", "dist-packages", "test", "tests", "lib2to3", "idlelib"}
    if not strange.isdisjoint(path.relative_to(library).parts) or not os.access(path, os.R_OK):
        # Debian's sitecustomize.py is a link, which may lead to nothing.
        return False
    return path.is_file() and 0 < path.stat().st_size < BIGGEST


def _count_done(task: str) -> int:
    """How many jobs of that task are done."""
    return sum(one.count for one in app.client.store.counts() if one.task == task and one.state == "done")
