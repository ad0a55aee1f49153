"""Each time that a command prints has its zone beside it: the local one, or UTC where that is asked for."""

import ast
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tarry.cli
from tarry.cli.main import COMMAND_MODULES, main
from tarry.cli.shared import printing
from tests.cli.project import Project

APP = """
from tarry import App
app = App("sqlite:///tarry.db")

@app.task(cron="0 9 * * *", zone="Europe/Paris")
def report() -> None:
    raise ValueError("no")
"""
COMMANDS = [
    ("schedules",),
    ("schedules", "show", "app.report"),
    ("jobs", "show", "--task", "app.report"),
    ("jobs", "list"),
    ("stats", "--hours"),
    ("stats", "--days"),
    ("stats",),
    ("audit",),
    ("top", "--once"),
    ("status",),
    ("hosts",),
    ("status", "--all"),
    ("queues",),
    ("queues", "show", "default"),
    ("flows",),
    ("flows", "approvals"),
]
"""Commands that print something about moments."""
TIME = re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(.{0,10})")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A master that serves, a job that fails, and something in the log of acts."""
    project = Project(tmp_path_factory.mktemp("times"))
    project.write("app.py", APP)
    project.said("schedules", "run", "app.report")
    project.said("schedules", "pause", "app.report")
    project.said("schedules", "resume", "app.report")
    project.serve()
    yield project
    project.close()


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch, told: Project) -> Iterator[None]:
    monkeypatch.chdir(told.directory)
    monkeypatch.syspath_prepend(str(told.directory))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
    # Other projects have a module of that name, too.
    sys.modules.pop("app", None)


@pytest.mark.usefixtures("tokyo")
@pytest.mark.parametrize(("options", "zone"), [((), "+09:00"), (("--utc",), "UTC")], ids=["local", "utc"])
def test_each_time_has_its_zone_beside_it(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], zone: str
) -> None:
    found: dict[str, int] = {}
    for words in COMMANDS:
        main([*words, *options])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        heads = said.out.partition("\n")[0]
        times = [match[1] for match in TIME.finditer(said.out)]
        assert all(rest.startswith(f" {zone}") for rest in times) or f"({zone})" in heads, (words, said.out)
        found[" ".join(words)] = len(times) + (f"({zone})" in heads)
    for command in (
        "schedules",
        "schedules show app.report",
        "jobs show --task app.report",
        "audit",
        "top --once",
        "status",
    ):
        assert found[command], f"{command} prints no time"


def test_commands_print_times_by_one_function() -> None:
    """No other module of the commands puts a time into words."""
    homes = Path(tarry.cli.__file__).parent
    names = {"strftime", "localtime", "gmtime", "ctime", "asctime"}
    found = {
        f"{path.relative_to(homes)}:{node.lineno}"
        for path in homes.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute | ast.Name)
        and (node.attr if isinstance(node, ast.Attribute) else node.id) in names
    }
    # The second one computes when today begins.
    assert {place.partition(":")[0] for place in found} == {"shared/printing.py", "top/stats.py"}
    assert COMMAND_MODULES


@pytest.mark.parametrize(
    ("zone", "moment", "shown"),
    [
        ("Asia/Tokyo", 1_800_000_000, "2027-01-15 17:00:00 +09:00"),
        ("Asia/Kolkata", 1_800_000_000, "2027-01-15 13:30:00 +05:30"),
        ("America/New_York", 1_800_000_000, "2027-01-15 03:00:00 -05:00"),
        ("America/New_York", 1_785_000_000, "2026-07-25 13:20:00 -04:00"),
        ("UTC", 1_800_000_000, "2027-01-15 08:00:00 UTC"),
    ],
)
def test_a_time_has_the_offset_of_its_own_day(
    monkeypatch: pytest.MonkeyPatch, zone: str, moment: int, shown: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        assert printing.format_clock(moment * 1_000_000) == shown
        with printing.in_utc():
            assert printing.format_clock(moment * 1_000_000).endswith(" UTC")
    time.tzset()
