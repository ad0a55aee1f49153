"""Hosts of two versions on one store, while jobs come: the wheel of this tree, and one whose schema is a step more."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.once import made_once
from tests.runtime.master_harness import until
from tests.servers.redis import RedisServer

ENGINES = ["sqlite", "redis", "postgresql", "mysql"]
WEIGHS = "ALTER TABLE {}job ADD COLUMN weight INTEGER NOT NULL DEFAULT 3"
STEPS = {
    "sqlite": ("STEPS", WEIGHS.format("tarry_")),
    "postgres": ("MIGRATIONS", WEIGHS.format("{s}.")),
    "mysql": ("STEPS", WEIGHS.format("tarry_")),
    "redis": ("STEPS", "HSET {s}:weights default 3"),
}
"""Of each engine: the name of its steps, and what the further one does."""

ENOUGH = 100
"""Jobs that a worker has to run, and a producer to put, beside those of the other version."""

APP = """
import os, tarry
app = tarry.App()

@app.task
def note(number: int) -> None:
    with open("ran", "a") as ran:
        ran.write(f"{os.environ['VERSION']} {number}\\n")
"""

PRODUCE = """
import os, sys, app
for number in range(int(sys.argv[1]), 10**9, 2):
    if os.path.exists("enough"):
        break
    app.note.enqueue(number)
    with open("put", "a") as put:
        put.write(f"{os.environ['VERSION']} {number}\\n")
"""


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/x.db"
    elif request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.empty()
        yield server.url
        server.empty()
    else:
        yield request.getfixturevalue({"postgresql": "new_postgres_url", "mysql": "new_mariadb_url"}[request.param])


class Host:
    """The programs of one version, in a directory that both share."""

    def __init__(self, version: str, library: Path, environ: Mapping[str, str], directory: Path) -> None:
        self._environ = {**environ, "VERSION": version, "PYTHONPATH": f"{library}{os.pathsep}{directory}"}
        self._version, self._directory = version, directory

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """It says of errors in the file `said`."""
        with (self._directory / "said").open("a") as said:
            return subprocess.Popen(["python", *words], cwd=self._directory, env=self._environ, stderr=said)

    def run(self, *words: str) -> tuple[int, str]:
        """`tarry WORDS`: its status, and what it says of errors."""
        ran = subprocess.run(
            ["python", "-m", "tarry", *words], cwd=self._directory, env=self._environ,
            capture_output=True, text=True, timeout=250, check=False,
        )  # fmt: skip
        return ran.returncode, ran.stderr

    def count(self, file: str) -> int:
        """How many jobs it has put, or run, so far."""
        return sum(line.startswith(self._version) for line in lines(self._directory / file))


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def numbers(file: Path) -> set[str]:
    return {line.split()[1] for line in lines(file) if line}


@pytest.fixture
def host(
    url: str, installed: dict[str, str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Host]:
    """A host of the version `older`, or of one whose further step lets older programs go on (`newer`) or not
    (`breaking`)."""
    directory, library = tmp_path / "shared", Path(installed["PYTHONPATH"])
    directory.mkdir()
    (directory / "app.py").write_text(APP)
    (directory / "produce.py").write_text(PRODUCE)
    (directory / "tarry.toml").write_text(f'store = "{url}"\n')

    def make(version: str) -> Host:
        if version == "older":
            return Host(version, library, installed, directory)
        further = made_once(tmp_path_factory, version, lambda to: _go_further(library, to, version == "newer"))
        return Host(version, further / "lib", installed, directory)

    return make


def _go_further(library: Path, to: Path, older_go_on: bool) -> None:
    shutil.copytree(library, to / "lib")
    for engine, (name, statement) in STEPS.items():
        with (to / f"lib/tarry/store/{engine}/schema.py").open("a") as schema:
            step = f'SchemaStep("weighs jobs", ({statement!r},), older_go_on={older_go_on})'
            schema.write(f"\n\n{name} = (*{name}, {step})\n")


@pytest.mark.parametrize("url", ENGINES, indirect=True)
def test_both_versions_go_on_and_nothing_is_lost(host: Callable[[str], Host], tmp_path: Path) -> None:
    older, newer = host("older"), host("newer")
    ran, put, enough = (tmp_path / "shared" / name for name in ("ran", "put", "enough"))
    with ExitStack() as stack:
        running: list[subprocess.Popen[bytes]] = []

        def start(one: Host, *words: str) -> None:
            process = stack.enter_context(one.start(*words))
            stack.callback(process.kill)
            running.append(process)

        start(older, "produce.py", "0")
        start(older, "-m", "tarry", "-a", "app", "worker")
        until(lambda: older.count("ran") >= ENOUGH, 60)
        assert newer.run("-a", "app", "migrate", "--yes") == (0, "")
        start(newer, "produce.py", "1")
        start(newer, "-m", "tarry", "-a", "app", "worker")
        # Another one of the version before, which begins only now.
        start(older, "-m", "tarry", "-a", "app", "worker")
        until(lambda: min(newer.count("put"), newer.count("ran")) >= 1, 60)
        for one in (older, newer):
            for file, before in [(file, one.count(file)) for file in ("put", "ran")]:
                until(lambda one=one, file=file, before=before: one.count(file) >= before + ENOUGH, 60)  # type: ignore[misc]
        enough.touch()
        until(lambda: numbers(put) == numbers(ran) and enough.exists() and have_ended(running, "produce.py"), 120)
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in running] == [0] * len(running)
    said = (tmp_path / "shared/said").read_text()
    assert "ERROR" not in said
    assert "Traceback" not in said
    assert numbers(put) == numbers(ran)


def have_ended(running: Sequence[subprocess.Popen[bytes]], program: str) -> bool:
    return all(one.poll() is not None for one in running if program in one.args)  # type: ignore[operator]


@pytest.mark.parametrize("url", ENGINES, indirect=True)
def test_a_program_that_must_not_go_on_is_told_so(host: Callable[[str], Host]) -> None:
    older, newer = host("older"), host("breaking")
    with older.start("-m", "tarry", "-a", "app", "worker") as worker:
        try:
            assert older.run("-a", "app", "enqueue", "app.note", "1")[0] == 0
            until(lambda: older.count("ran") == 1, 60)
            # Not before its operator says so.
            status, err = newer.run("-a", "app", "enqueue", "app.note", "2")
            assert (status, "run `tarry migrate`" in err) == (1, True)
            assert older.run("-a", "app", "enqueue", "app.note", "3")[0] == 0
            until(lambda: older.count("ran") == 2, 60)
        finally:
            worker.terminate()
    assert newer.run("-a", "app", "migrate", "--yes") == (0, "")
    assert newer.run("-a", "app", "enqueue", "app.note", "4")[0] == 0
    for words in (("enqueue", "app.note", "5"), ("worker",)):
        status, err = older.run("-a", "app", *words)
        assert status == 1
        assert "upgrade tarry on this host" in err
    assert older.run("-a", "app", "jobs")[0] == 1
