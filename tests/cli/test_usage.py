import re
import subprocess
import sys

import pytest

from tarry import __version__
from tests.cli.project import Place

COMMANDS = ("start", "stop", "quit", "restart", "status", "enqueue", "jobs", "queues", "tasks", "check", "init")


def test_help_names_every_command(place: Place) -> None:
    said = place.said("--help")
    assert all(re.search(rf"^    {name} ", said, re.M) for name in COMMANDS), said


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_takes_json(place: Place, command: str) -> None:
    said = place.said(command, "--help")
    assert said.startswith(f"usage: tarry {command}")
    assert "--json" in said


def test_version(place: Place) -> None:
    assert place.said("--version") == f"tarry {__version__}"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("fly",),
        ("--fly",),
        ("jobs", "fly"),
        ("jobs", "list", "--state", "asleep"),
        ("jobs", "list", "--limit", "many"),
        ("queues", "fly"),
        ("enqueue", "app.add", "--priority", "high"),
        ("stop", "--timeout"),
    ],
)
def test_a_wrong_call_is_status_2_with_the_usage(place: Place, words: tuple[str, ...]) -> None:
    ran = place.tarry(*words)
    assert ran.status == 2
    assert ran.err.startswith("usage: tarry")
    assert "error: " in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "meant"), [(("strat",), "start"), (("jobs", "lst"), "list"), (("queues", "pasue", "mail"), "pause")]
)
def test_of_a_mistyped_word_the_nearest_is_named(place: Place, words: tuple[str, ...], meant: str) -> None:
    ran = place.tarry(*words)
    assert ran.status == 2
    assert ran.err.rstrip().endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize("command", ["status", "start", "stop", "jobs", "tasks"])
def test_wrong_settings_are_one_line_that_names_the_place(place: Place, command: str) -> None:
    place.settings("[mater]\nlog = 'stderr'\n")
    assert place.refused(command) == "tarry.toml:2: unknown setting mater; did you mean master?"


def test_a_settings_file_that_is_not_there(place: Place) -> None:
    assert place.refused("-c", "other.toml", "status").startswith("other.toml does not exist")


def test_settings_from_another_file_and_from_a_variable(place: Place) -> None:
    place.write("other.toml", 'app = "app:app"\nstore = "sqlite:///other.db"\n')
    place.said("-c", "other.toml", "enqueue", "app.add", "1")
    assert (place.directory / "other.db").exists()
    place.said("enqueue", "app.add", "1", TARRY_STORE="sqlite:///third.db")
    assert (place.directory / "third.db").exists()
    assert not place.database.exists()


def test_the_app_on_the_command_line_comes_first(place: Place) -> None:
    place.write("shop.py", (place.directory / "app.py").read_text())
    names = [task["task"] for task in place.facts("-a", "shop:app", "tasks")]
    assert names == ["shop.add", "shop.fail", "shop.greet"]


def test_a_bug_is_not_hidden_when_a_traceback_is_wanted(place: Place) -> None:
    ran = place.tarry("jobs", "show", "no-id", TARRY_TRACEBACK="1")
    assert ran.status == 1
    assert "Traceback" in ran.err


def test_a_reader_that_left_is_no_error(place: Place) -> None:
    place.write("many", "".join(f"[{n}]\n" for n in range(3000)))
    place.said("enqueue", "app.add", "--batch", "many")
    command = f"{sys.executable} -m tarry jobs --limit 3000 | head -1"
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=place.directory, env=place.environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("id ")
