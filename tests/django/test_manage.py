"""`manage.py` of a project of its own: check, migrate, a worker that runs a task, status and stop."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.django.projects import manage

MANAGE = """
import os, sys
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
SETTINGS = """
import importlib.util
from pathlib import Path
SECRET_KEY = "only for tests"
USE_TZ = True
backport = [] if importlib.util.find_spec("django.tasks") else ["django_tasks"]
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", *backport, "tarry.django", "orders"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(__file__).parents[1] / "db.sqlite3"}}
TASKS = {"default": {"BACKEND": "tarry.django.Backend", "QUEUES": ["default"], "OPTIONS": {}}}
"""
TASKS = """
from django.contrib.auth.models import User
from tarry.django import task
@task
def count() -> int:
    return User.objects.count()
"""
SHOP = """
from django.contrib.auth.models import User
from django.db import transaction
from orders.tasks import count
from tarry.django import compat
with transaction.atomic():
    User.objects.create(username="ann")
    result = count.enqueue()
assert compat.task_backends["default"].app.get(result.id).result(timeout=30) == 1
result.refresh()
print(result.status, result.return_value, len(result.worker_ids[0]) > 0)
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    for name, text in {
        "manage.py": MANAGE, "shop/__init__.py": "", "shop/settings.py": SETTINGS, "orders/__init__.py": "",
        "orders/tasks.py": TASKS,
    }.items():  # fmt: skip
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    yield tmp_path
    manage(tmp_path, "tarry", "quit", status=None)


def test_a_job_of_a_project(project: Path) -> None:
    assert "no issues" in manage(project, "check")
    manage(project, "migrate", "-v0")
    assert "orders.tasks.count" in manage(project, "tarry", "tasks")
    assert "serves" in manage(project, "tarry", "start", "-d")
    assert "worker default.1" in manage(project, "tarry", "status")
    assert manage(project, "shell", "-c", SHOP).splitlines()[-1] == "SUCCESSFUL 1 True"
    assert "orders.tasks.count" in manage(project, "tarry", "jobs")
    manage(project, "tarry", "stop")
    manage(project, "tarry", "status", status=3)


def test_what_a_command_answers_passes(project: Path) -> None:
    manage(project, "tarry", "nonsense", status=2)
    assert "TASKS has no 'nowhere'" in manage(project, "tarry", "--backend", "nowhere", "tasks", status=None)


def test_check_says_what_is_wrong(project: Path) -> None:
    for options, said in (
        ('{"stroe": "redis://localhost"}', "OPTIONS has no stroe"),
        ('{"store": "nonsense://"}', "tarry.E003"),
        ('{"store": "redis://127.0.0.1:1/0"}', "the store cannot be reached"),
        ('{"database": "none"}', "tarry.E002"),
    ):
        (project / "shop/settings.py").write_text(SETTINGS.replace('"OPTIONS": {}', f'"OPTIONS": {options}'))
        assert said in manage(project, "check", status=None), options
    (project / "shop/settings.py").write_text(SETTINGS.replace('["default"]', '["default", "mail"]'))
    (project / "tarry.toml").write_text('[pools.default]\nqueues = ["default"]\n')
    assert "no pool of tarry.toml serves the queues mail" in manage(project, "check")
