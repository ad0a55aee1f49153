"""Projects in a folder, and their manage.py, run as a user runs it."""

import subprocess
import sys
from pathlib import Path

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


def make_project(folder: Path) -> None:
    """A shop with an app, its database in a file of SQLite."""
    for name, text in {
        "manage.py": MANAGE, "shop/__init__.py": "", "shop/settings.py": SETTINGS, "orders/__init__.py": "",
        "orders/tasks.py": TASKS,
    }.items():  # fmt: skip
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")


def manage(project: Path, *words: str, status: int | None = 0) -> str:
    """What `manage.py` says. status: that it must exit with; None: any."""
    return run(project, "manage.py", *words, status=status)


def tarry(project: Path, *words: str, status: int | None = 0) -> str:
    """What tarry's own command says."""
    return run(project, "-m", "tarry", *words, status=status)


def run(project: Path, *words: str, status: int | None = 0) -> str:
    """What python says in the folder of a project."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *words], cwd=project, timeout=250, capture_output=True, text=True, check=False
    )
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr
