"""Where commands look for settings and for the store: a job that is acknowledged goes where workers look for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tarry.cli import main
from tarry.client.client import Client
from tarry.config import config, parser
from tarry.store import opening
from tarry.store.shared.creation import only_existing
from tests.cli.commands import methods_of
from tests.cli.project import SMALL_APP, CommandResult, Project, until

READING = [
    "jobs", "jobs show --state dead", "flows", "queues", "queues show mail", "limits", "schedules", "tasks",
    "endpoints", "hosts", "shards", "stats", "audit", "check", "doctor", "status", "errors", "deploys",
]  # fmt: skip
"""A command of each module that only reads, or finds nothing to change where there is no store."""


def below(project: Project, *words: str) -> CommandResult:
    """The command, called two directories below the settings."""
    directory = project.directory / "src" / "shop"
    directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tarry", *words]
    ended = subprocess.run(
        command, cwd=directory, env=project.environ, capture_output=True, text=True, timeout=250, check=False
    )
    return CommandResult(ended.returncode, ended.stdout, ended.stderr)


def databases(directory: Path) -> list[Path]:
    return sorted(file.relative_to(directory) for file in directory.rglob("*.db"))


def test_settings_are_found_above(project: Project) -> None:
    first = below(project, "enqueue", "app.add", "[1, 2]")
    assert (first.status, first.err) == (0, f"tarry: new store at sqlite:///{project.database}\n")
    again = below(project, "enqueue", "app.add", "[1, 2]")
    assert (again.status, again.err) == (0, "")
    assert len(project.jobs(task="app.add")) == 2
    assert databases(project.directory) == [Path("tarry.db")]


def test_a_program_below_uses_the_same_store(project: Project) -> None:
    directory = project.directory / "src"
    directory.mkdir()
    text = "import sys; sys.path.insert(0, '..'); from app import app, add; add.enqueue(1); app.close()"
    subprocess.run([sys.executable, "-c", text], cwd=directory, env=project.environ, timeout=250, check=True)
    assert len(project.jobs()) == 1
    assert databases(project.directory) == [Path("tarry.db")]


def test_the_nearest_settings_count(project: Project) -> None:
    (project.directory / "src").mkdir()
    project.write("src/pyproject.toml", "[tool.other]\nx = 1\n")
    assert below(project, "enqueue", "app.add", "[1]").status == 0, "one without [tool.tarry] is not for tarry"
    project.write("src/tarry.toml", 'store = "sqlite:///mine.db"\n')
    assert "no app" in below(project, "start").err
    assert below(project, "limits", "set", "queue:mail", "--limit", "3").status == 0
    assert databases(project.directory) == [Path("src/mine.db"), Path("tarry.db")]


def test_settings_above_of_another_user_are_not_used(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    below(project, "status")
    directory = project.directory / "src" / "shop"
    assert config.load(directory=directory).app == "app:app"
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    monkeypatch.setattr(parser, "ROOT_UID", 4712)
    assert config.load(directory=directory).app is None
    assert "belongs to another user" in caplog.text
    assert config.load(directory=project.directory).app == "app:app", "those of the working directory are used"


@pytest.mark.parametrize("words", READING)
def test_who_only_reads_makes_no_store(project: Project, words: str) -> None:
    result = project.tarry(*words.split())
    assert databases(project.directory) == []
    assert result.status in (0, 1, 3), result
    assert "Traceback" not in result.err
    said = f"tarry: no store at sqlite:///{project.database} yet: the first `tarry start` or enqueue makes it"
    assert words in ("status", "doctor") or said in result.err.splitlines() or "not there yet" in result.out, result


def test_every_command_makes_a_store_on_purpose_or_not_at_all() -> None:
    known = {name for names in main.COMMAND_MODULES.values() for name in names}
    of_masters = {"top", "stop", "quit", "reload", "scale"}
    of_files, of_servers = {"init", "completion", "tokens", "passwords"}, {"mcp"}
    reading = {words.split()[0] for words in READING}
    changing = {name for name in known if any(one.may_change for one in methods_of(name))}
    assert known == main.CREATING | changing | reading | of_masters | of_files | of_servers


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_server_is_left_without_tables_too(request: pytest.FixtureRequest, kind: str) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    for _ in range(2):
        with only_existing():
            assert opening.open_store(url).counts() == []
    store = opening.open_store(url)
    Client(store, {}).insert_jobs([Client(store, {}).make_job("send", b"[]")])
    with only_existing():
        again = opening.open_store(url)
    assert (again.url, len(again.counts())) == (store.url, 1)
    again.close()
    store.close()


def test_a_daemon_s_app_that_is_used_while_it_is_imported_has_the_project_s_store(project: Project) -> None:
    project.write("app.py", SMALL_APP + "\nadd.using(key='boot').enqueue(1, 2)\n")
    project.said("start", "-d")
    until(lambda: [job.state for job in project.jobs(task="app.add")] and project.jobs()[0].state == "done")
    assert databases(project.directory) == [Path("tarry.db")]
    assert f"new store at sqlite:///{project.database}\n" in project.pid_file.with_suffix(".log").read_text()
    project.said("stop")


def test_start_with_nothing_to_run_names_the_app_that_is_here(empty: Project) -> None:
    assert empty.refused("start").startswith("nothing to run here: no app is named, and there are no HTTP tasks and no")
    empty.write("first.py", "from tarry import App\n\napp = App()\n")
    empty.write("second.py", "import tarry\n\nmine: tarry.App = tarry.App(store='sqlite:///x.db')\n")
    empty.write("other.py", "app = Flask(__name__)\n  app = App()\n")
    assert "Write `tarry -a first:app start` (or second:mine), or set app" in empty.refused("start")
    assert databases(empty.directory) == []


def test_a_task_in_the_store_is_something_to_run(empty: Project) -> None:
    empty.said("tasks", "add", "hook", "url=https://example.org/")
    empty.serve()
