"""`manage.py` of a project of its own: check, migrate, a worker that runs a task, status and stop."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.django.projects import make_project, manage

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
    make_project(tmp_path)
    yield tmp_path
    manage(tmp_path, "tarry", "quit", status=None)


def test_a_job_of_a_project(project: Path) -> None:
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
