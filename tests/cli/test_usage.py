import argparse
import re
import subprocess
import sys
from typing import Any

import pytest

from tarry import __version__
from tarry.cli.main import parser
from tests.cli.project import Project

COMMANDS = ("start", "stop", "quit", "restart", "status", "enqueue", "jobs", "queues", "tasks", "check", "init")


def test_help_names_every_command(project: Project) -> None:
    said = project.said("--help")
    assert all(re.search(rf"^    {name} ", said, re.M) for name in COMMANDS), said


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_takes_json(project: Project, command: str) -> None:
    said = project.said(command, "--help")
    assert said.startswith(f"usage: tarry {command}")
    assert "--json" in said


def test_each_option_is_added_with_a_help_that_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.14 refuses any other, and with it the command."""
    added = []
    add = argparse._ActionsContainer.add_argument

    def noting(self: argparse._ActionsContainer, *names: str, **options: Any) -> argparse.Action:
        added.append((names, options.get("help", "")))
        return add(self, *names, **options)

    monkeypatch.setattr(argparse._ActionsContainer, "add_argument", noting)
    parser()
    assert len(added) > 200
    assert [names for names, help in added if not isinstance(help, str)] == []


def test_the_help_of_each_command_begins_with_what_it_does() -> None:
    whole = parser()
    (commands,) = [one for one in whole._actions if isinstance(one, argparse._SubParsersAction)]
    for named in commands._choices_actions:
        said = " ".join(commands.choices[named.dest].format_help().split())
        words = " ".join((named.help or "").split())
        assert f"{words[:1].upper()}{words[1:]}." in said, named.dest


def test_where_no_command_is_named_the_way_to_the_list_is_told(project: Project) -> None:
    assert project.tarry().err.endswith("error: which command? `tarry --help` lists them\n")


def test_version(project: Project) -> None:
    assert project.said("--version") == f"tarry {__version__}"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("fly",),
        ("--fly",),
        ("jobs", "fly"),
        ("jobs", "list", "--state", "asleep"),
        ("queues", "fly"),
        ("enqueue", "app.add", "--priority", "high"),
        ("stop", "--timeout"),
    ],
)
def test_a_wrong_call_is_status_2_with_the_usage(project: Project, words: tuple[str, ...]) -> None:
    ran = project.tarry(*words)
    assert ran.status == 2
    assert ran.err.startswith("usage: tarry")
    assert "error: " in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "meant"), [(("strat",), "start"), (("jobs", "lst"), "list"), (("queues", "pasue", "mail"), "pause")]
)
def test_of_a_mistyped_word_the_nearest_is_named(project: Project, words: tuple[str, ...], meant: str) -> None:
    ran = project.tarry(*words)
    assert ran.status == 2
    assert ran.err.rstrip().endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("start", "--daemn"), "tarry start: error: unrecognized arguments: --daemn; did you mean --daemon?"),
        (
            ("enqueue", "app.add", "1", "--prioritty=3"),
            "tarry enqueue: error: unrecognized arguments: --prioritty=3; did you mean --priority?",
        ),
        (("-a", "app:app", "tasks", "--colour"), "tarry tasks: error: unrecognized arguments: --colour"),
    ],
)
def test_of_an_option_that_is_none_the_command_tells_the_nearest(
    project: Project, words: tuple[str, ...], said: str
) -> None:
    assert project.tarry(*words).err.splitlines()[-1] == said


def test_an_error_is_not_hidden_by_a_long_usage(project: Project) -> None:
    first, second = project.tarry("jobs", "list", "--state", "asleep").err.splitlines()
    assert first == "usage: tarry jobs ...: `tarry jobs --help` shows all it takes"
    assert second.startswith("tarry jobs: error: argument --state: invalid choice: 'asleep'")
    assert "[--order {oldest,newest}]" in project.said("jobs", "--help").partition("\n\n")[0]


@pytest.mark.parametrize("command", ["status", "start", "stop", "jobs", "tasks"])
def test_wrong_settings_are_one_line_that_names_the_place(project: Project, command: str) -> None:
    project.settings("[mater]\nlog = 'stderr'\n")
    assert project.refused(command) == "tarry.toml:2: unknown setting mater; did you mean master?"


def test_a_settings_file_that_is_not_there(project: Project) -> None:
    assert project.refused("-c", "other.toml", "status").startswith("other.toml does not exist")


def test_settings_from_another_file_and_from_a_variable(project: Project) -> None:
    project.write("other.toml", 'app = "app:app"\nstore = "sqlite:///other.db"\n')
    project.said("-c", "other.toml", "enqueue", "app.add", "1")
    assert (project.directory / "other.db").exists()
    project.said("enqueue", "app.add", "1", TARRY_STORE="sqlite:///third.db")
    assert (project.directory / "third.db").exists()
    assert not project.database.exists()


def test_the_app_on_the_command_line_comes_first(project: Project) -> None:
    project.write("shop.py", (project.directory / "app.py").read_text())
    names = [task["task"] for task in project.facts("-a", "shop:app", "tasks")["tasks"]]
    assert names == ["shop.add", "shop.fail", "shop.greet"]


def test_what_stands_before_the_command_may_also_follow_it(project: Project) -> None:
    project.write("other.toml", 'app = "app:app"\nstore = "sqlite:///other.db"\n')
    project.said("enqueue", "app.add", "1", "-c", "other.toml")
    assert (project.directory / "other.db").exists()
    assert not project.database.exists()
    project.write("shop.py", (project.directory / "app.py").read_text())
    names = [task["task"] for task in project.facts("-a", "app:app", "tasks", "--app", "shop:app")["tasks"]]
    assert names == ["shop.add", "shop.fail", "shop.greet"]


@pytest.mark.parametrize(
    ("app", "meant"),
    [
        ("app.py", "app:app"),
        ("app.py:main", "app:main"),
        ("./app.py", "app:app"),
        ("src/shop/app.py:app", "src.shop.app:app"),
        ("src/shop", "src.shop:app"),
    ],
)
def test_an_app_that_is_named_by_its_file(project: Project, app: str, meant: str) -> None:
    assert project.refused("tasks", "-a", app) == f"app {app}: that is a file; name its module, as {meant}"


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("shop", "app shop: shop has no app; did you mean shop:jobs?"),
        ("shop:job", "app shop:job: shop has no job; did you mean shop:jobs?"),
        ("shop:number", "app shop:number is int, not a tarry App; did you mean shop:jobs?"),
        ("json", "app json: json has no app; name its App, as module:app"),
    ],
)
def test_an_app_that_is_called_otherwise(project: Project, app: str, said: str) -> None:
    project.write("shop.py", "from tarry import App\njobs = App()\nnumber = 3\n")
    assert project.refused("tasks", "-a", app) == said


def test_a_bug_is_not_hidden_when_a_traceback_is_wanted(project: Project) -> None:
    ran = project.tarry("jobs", "show", "no-id", TARRY_TRACEBACK="1")
    assert ran.status == 1
    assert "Traceback" in ran.err


def test_a_reader_that_left_is_no_error(project: Project) -> None:
    project.write("many", "".join(f"[{n}]\n" for n in range(3000)))
    project.said("enqueue", "app.add", "--batch", "many")
    command = f"{sys.executable} -m tarry jobs --limit 1000 | head -1"
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=project.directory, env=project.environ, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("id ")
