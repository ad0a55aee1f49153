"""Runs the suite in a process of its own: Django's settings, once made, are a process's for good."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEMORY = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}


def run_suite(*cases: str, database: Mapping[str, object] = MEMORY, options: Mapping[str, object] = {}) -> None:
    """Runs these modules of the suite by Django's own runner; AssertionError with what it says if one fails."""
    given = json.dumps({"database": dict(database), "options": dict(options)})
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.django.suite.run", *cases],
        cwd=ROOT, env={**os.environ, "SUITE": given}, timeout=280, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "\nOK" in done.stderr, said


def sqlite_file(directory: Path) -> Mapping[str, object]:
    """Django's database in a file, in tests another one."""
    test = {"NAME": str(directory / "test.db")}
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(directory / "shop.db"), "TEST": test}


def on_server(engine: str, name: str, user: str, port: int) -> Mapping[str, object]:
    """Django's database on a server of this host, in tests another one there."""
    place = {"NAME": name, "USER": user, "HOST": "127.0.0.1", "PORT": port}
    return {"ENGINE": f"django.db.backends.{engine}", **place, "TEST": {"NAME": "test_django_suite"}}
