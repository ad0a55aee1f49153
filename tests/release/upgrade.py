"""From the wheel of the release before to this one, while jobs are put and run."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.release.check import BUILD, ROOT, CannotRun, CheckFailed, run

JOBS = 3000
UNRELEASED = "HEAD~10"
"""What stands for the release before, as long as there is none."""

APP = """
import time
from tarry import App

app = App()

@app.task
def work(number: int) -> int:
    time.sleep(0.002)
    return number
"""
PRODUCE = f"""
import time
from app import work

for number in range({JOBS}):
    work.enqueue(number)
    time.sleep(0.005)
"""
SETTINGS = 'app = "app:app"\n[pools.default]\nworkers = 2\n[queues.default]\nkeep = {done = "1h", bytes = "64MB"}\n'


def check() -> str:
    """Upgrades from the wheel of the last release, while a producer puts jobs and workers run them."""
    before = _last_release()
    wheels = (_wheel(before or UNRELEASED, "0.0.1" if not before else ""), _wheel("HEAD", "99.0.0"))
    with tempfile.TemporaryDirectory(prefix="tarry-release-") as directory:
        place = Path(directory)
        for name, text in (("app.py", APP), ("produce.py", PRODUCE), ("tarry.toml", SETTINGS)):
            (place / name).write_text(text, encoding="utf-8")
        versions = _upgrade_under_load(place, *wheels)
    since = f"{before}" if before else f"{UNRELEASED}, since there is no release yet"
    return f"from {since}: {JOBS} jobs put and done, {versions[0]} serves no more, {versions[1]} does"


def _last_release() -> str:
    tags = run("git", "tag", "--list", "v*", "--sort=-v:refname", "--merged").split()
    return next((tag for tag in tags if run("git", "rev-list", "-n", "1", tag) != run("git", "rev-parse", "HEAD")), "")


def _wheel(revision: str, version: str) -> Path:
    """The wheel of that revision. version: its name, where git does not tell it."""
    known = subprocess.run(["git", "rev-parse", "-q", "--verify", revision], cwd=ROOT, capture_output=True, check=False)
    if known.returncode:
        raise CannotRun(f"git has no {revision} here: the clone is shallow")
    home = BUILD / "wheels" / (version or revision)
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tarry-release-") as directory:
        run("sh", "-c", f"git archive {revision} | tar -x -C {directory}")
        env = {"SETUPTOOLS_SCM_PRETEND_VERSION": version or revision.removeprefix("v")}
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home), cwd=Path(directory), env=env)
    return max(home.glob("*.whl"), key=lambda file: file.stat().st_mtime)


def _upgrade_under_load(place: Path, old: Path, new: Path) -> tuple[str, str]:
    """The versions of the master before and after."""
    home = place / "venv"
    run(sys.executable, "-m", "venv", str(home))
    python, tarry = str(home / "bin/python"), str(home / "bin/tarry")
    run(python, "-m", "pip", "install", "--quiet", str(old))
    run(tarry, "start", "-d", cwd=place)
    try:
        was = _version(tarry, place)
        with _producer(python, place) as producer:
            _until(lambda: _done(tarry, place) > JOBS // 20, "the first jobs are done")
            run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(new))
            run(tarry, "upgrade", cwd=place, seconds=120)
            if producer.poll() is not None:
                raise CheckFailed("the producer had ended before the upgrade: nothing was under load")
            if producer.wait(120):
                raise CheckFailed("the producer failed during the upgrade")
        _until(lambda: _done(tarry, place) == JOBS, f"all {JOBS} jobs are done")
        return was, _version(tarry, place)
    finally:
        run(tarry, "stop", cwd=place, seconds=60)


@contextmanager
def _producer(python: str, place: Path) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([python, "produce.py"], cwd=place)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _version(tarry: str, place: Path) -> str:
    hosts = json.loads(run(tarry, "--json", "hosts", cwd=place))["hosts"]
    (serving,) = [host["version"] for host in hosts if host["alive"]]
    return str(serving)


def _done(tarry: str, place: Path) -> int:
    queues = json.loads(run(tarry, "--json", "queues", cwd=place))["queues"]
    return sum(int(queue["done"]) for queue in queues)


def _until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise CheckFailed(f"not after {seconds:.0f} s: {what}")
        time.sleep(0.2)
