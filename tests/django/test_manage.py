"""`manage.py` of a project of its own: check, migrate, a worker that runs a task, status and stop."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.project import until
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


EARLY = """
from tarry.django import task
@task(limit=3)
def early() -> int:
    return 1
"""


def test_a_task_may_be_defined_before_the_models_are_loaded(project: Path) -> None:
    """As where a module of models imports tasks: a backend that loaded models would end that."""
    (project / "orders/models.py").write_text(EARLY)
    manage(project, "migrate", "-v0")
    assert "orders.models.early" in manage(project, "tarry", "tasks")


DYING = """
import os, signal
from pathlib import Path
from tarry.django import compat, task
def note(task_result, **more):
    told = f"{task_result.status} {task_result.attempts} {task_result.errors[-1].exception_class.__name__}"
    (Path(__file__).parents[1] / "finished.txt").write_text(told)
compat.task_finished.connect(note)
@task(retries=0)
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_that_dies_ends_the_job_for_receivers(project: Path) -> None:
    """Nothing of the worker's own can say so: the keeper does."""
    (project / "orders/tasks.py").write_text(DYING)
    manage(project, "migrate", "-v0")
    manage(project, "tarry", "start", "-d")
    manage(project, "shell", "-c", "from orders.tasks import die; die.enqueue()")
    told = project / "finished.txt"
    until(lambda: told.exists() and told.read_text())
    assert told.read_text() == "FAILED 3 JobFailed", "a crash counts apart from retries: three of them are enough"


def test_what_a_command_answers_passes(project: Path) -> None:
    manage(project, "tarry", "nonsense", status=2)
    assert "TASKS has no 'nowhere'" in manage(project, "tarry", "--backend", "nowhere", "tasks", status=None)
