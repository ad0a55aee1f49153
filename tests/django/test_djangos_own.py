"""Django's own tests of its tasks pass with tarry's backend in the place of Django's two.

They are in Django's source, not in what pip installs: DJANGO_TESTS is the folder `tests` of it. `make test-django6`
fetches it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = os.environ.get("DJANGO_TESTS", "")
DUMMY, IMMEDIATE = "django.tasks.backends.dummy.DummyBackend", "django.tasks.backends.immediate.ImmediateBackend"
KEEPING, RUNNING = "tests.django.own.backends.KeepingBackend", "tests.django.own.backends.RunningBackend"
OTHERWISE = {
    # They ask for the class of Django's backend.
    "test_get_backend", "test_using_correct_backend",
    # Django's backends run nothing later, keep no result, or take no notice of transactions. tarry's does.
    "test_cannot_pass_run_after", "test_cannot_get_result", "test_cannot_refresh_result",
    "test_doesnt_wait_until_transaction_commit_by_default",
    # A worker goes on after a task that raised KeyboardInterrupt; here the enqueue of Django's backend raises it.
    "test_throws_keyboard_interrupt",
}  # fmt: skip
"""Tests of what a backend of Django's is, and no other has to be."""
BY_HAND = {
    # They change the results in the list of DummyBackend.
    "test_refresh_result", "test_refresh_result_async",
}  # fmt: skip
RUN = """
import sys, django
from django.conf import settings
from django.test.utils import get_runner
django.setup()
sys.exit(get_runner(settings)(verbosity=2, interactive=False).run_tests(sys.argv[1:]))
"""


@pytest.mark.skipif(not SOURCE, reason="DJANGO_TESTS: Django's folder of tests")
@pytest.mark.parametrize(
    "module", ["test_tasks", "test_dummy_backend", "test_immediate_backend", "test_custom_backend"]
)
def test_djangos_own_tests(module: str, tmp_path: Path) -> None:
    shutil.copytree(Path(SOURCE, "tasks"), tmp_path / "tasks")
    for file in (tmp_path / "tasks").glob("test_*.py"):
        file.write_text(file.read_text().replace(DUMMY, KEEPING).replace(IMMEDIATE, RUNNING))
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN, f"tasks.{module}"],
        cwd=tmp_path, timeout=250, capture_output=True, text=True, check=False,
        env={
            **os.environ, "DJANGO_SETTINGS_MODULE": "tests.django.own.settings",
            "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT))),
        },
    )  # fmt: skip
    failed = set(re.findall(r"^(?:FAIL|ERROR): (\w+)", ran.stderr, re.MULTILINE))
    left_out = OTHERWISE | (BY_HAND if module == "test_dummy_backend" else set())
    assert failed <= left_out, ran.stderr
    assert int(re.findall(r"^Ran (\d+) tests", ran.stderr, re.MULTILINE)[0]) > len(failed) + 5, ran.stderr
