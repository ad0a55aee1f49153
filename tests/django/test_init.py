"""`tarry init --django` in projects that django-admin made."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.django.projects import manage, run, tarry

HELLO = "from shop.tasks import hello; from tarry.django import compat; result = hello.enqueue('Ann')"
WAITED = "compat.task_backends['default'].app.get(result.id).result(timeout=30)"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    run(tmp_path, "-m", "django", "startproject", "shop", ".")
    yield tmp_path
    if (tmp_path / "run").exists():
        manage(tmp_path, "tarry", "quit", status=None)


def test_a_new_project_of_djangos(project: Path) -> None:
    said = tarry(project, "init", "--django")
    assert "Added tarry at the end of shop/settings.py." in said
    manage(project, "migrate", "-v0")
    assert "no issues" in manage(project, "check")
    assert "shop.tasks.hello" in manage(project, "tarry", "tasks")
    assert "serves" in manage(project, "tarry", "start", "-d")
    assert "Hello, Ann!" in manage(project, "shell", "-c", f"{HELLO}; print({WAITED})")
    assert "tarry.django.worker:app: 1 task" in manage(project, "tarry", "check", status=None)
    assert "stopped" in manage(project, "tarry", "stop")


def test_what_is_there_stays_as_it_is(project: Path) -> None:
    (project / "tarry.toml").write_text("# mine\n")
    (project / "shop/tasks.py").write_text("# my tasks\n")
    before = (project / "shop/settings.py").read_text()
    said = tarry(project, "init", "--django")
    assert "Left as it was: tarry.toml and shop/tasks.py." in said
    assert "hello" not in said
    assert (project / "tarry.toml").read_text() == "# mine\n"
    assert (project / "shop/tasks.py").read_text() == "# my tasks\n"
    assert (project / "shop/settings.py").read_text().startswith(before)


def test_a_second_time_changes_nothing(project: Path) -> None:
    tarry(project, "init", "--django")
    before = {file: file.read_bytes() for file in project.rglob("*.*") if file.is_file() and file.suffix != ".pyc"}
    said = tarry(project, "init", "--django")
    assert "Add" not in said
    assert before == {file: file.read_bytes() for file in before}


def test_settings_with_tasks_are_left_to_the_user(project: Path) -> None:
    settings = project / "shop/settings.py"
    settings.write_text(before := settings.read_text() + "\nTASKS = {}\n")
    facts = json.loads(tarry(project, "--json", "init", "--django"))
    assert settings.read_text() == before
    assert (facts["appended"], facts["settings"]) == ([], "shop/settings.py")
    assert '"BACKEND": "tarry.django.Backend"' in facts["to_add"]
    assert "add the lines above to shop/settings.py" in facts["next"]
    assert "TASKS =" in tarry(project, "init", "--django")


def test_settings_in_several_files_are_left_to_the_user(project: Path) -> None:
    (project / "shop/settings").mkdir()
    (project / "shop/settings.py").rename(project / "shop/settings/base.py")
    (project / "shop/settings/__init__.py").write_text("from .base import *\n")
    assert "Add to shop/settings/__init__.py:" in tarry(project, "init", "--django")
    assert (project / "shop/settings/__init__.py").read_text() == "from .base import *\n"


def test_where_there_is_no_project(tmp_path: Path) -> None:
    assert "django-admin startproject" in tarry(tmp_path, "init", "--django", status=1)
    assert not list(tmp_path.iterdir())
    (tmp_path / "manage.py").write_text("")
    assert "DJANGO_SETTINGS_MODULE" in tarry(tmp_path, "init", "--django", status=1)
    (tmp_path / "manage.py").write_text('os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gone.settings")')
    assert "gone.settings" in tarry(tmp_path, "init", "--django", status=1)


def test_where_one_may_not_write(project: Path) -> None:
    (project / "tarry.toml").symlink_to("/proc/tarry.toml")
    assert "cannot be written" in tarry(project, "init", "--django", status=1)
