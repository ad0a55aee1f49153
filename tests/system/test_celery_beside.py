"""The way over, module by module: workers of Celery and of tarry side by side, then the old broker is drained."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.project import Project, until
from tests.servers.redis import RedisServer

OLD_APP = """
import os
from celery import Celery
app = Celery("old", broker=os.environ["OLD_BROKER"], include=["old_tasks"])
app.conf.broker_transport_options = {"socket_timeout": 10}
"""
OLD_TASKS = """
from celery import shared_task
from ledger import tell

@shared_task(name="tasks.first")
def first(n):
    tell("celery", "first", n)

@shared_task(name="tasks.second")
def second(n):
    tell("celery", "second", n)
    from new_tasks import third
    third.delay(n)
"""
NEW_APP = """
from tarry.compat.celery import Celery
app = Celery("new", include=["new_tasks"])
"""
NEW_TASKS = """
import new_app
from tarry.compat.celery import shared_task
from ledger import tell

@shared_task(name="tasks.third")
def third(n):
    tell("tarry", "third", n)
"""
# What the last step does: its imports are changed, and it stands in the new app's module.
MOVED = """
@shared_task(name="tasks.first")
def first(n):
    tell("tarry", "first", n)

@shared_task(name="tasks.second")
def second(n):
    tell("tarry", "second", n)
    third.delay(n)
"""
LEDGER = """
import json, os
from pathlib import Path

def tell(*what):
    fd = os.open(Path(__file__).with_name("told"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, json.dumps(what).encode() + b"\\n")
    os.close(fd)
"""


class Moving(Project):
    """Both apps in one directory; the broker is a Redis, the store a file."""

    def __init__(self, directory: Path, broker: str) -> None:
        super().__init__(directory, "")
        self.broker = broker
        for name, text in (
            ("old_app", OLD_APP), ("old_tasks", OLD_TASKS), ("new_app", NEW_APP), ("new_tasks", NEW_TASKS),
            ("ledger", LEDGER),
        ):  # fmt: skip
            self.write(f"{name}.py", text)
        self.write("tarry.toml", 'app = "new_app:app"\n')

    @property
    def environ(self) -> dict[str, str]:
        return super().environ | {"OLD_BROKER": self.broker}

    def old_worker(self) -> "subprocess.Popen[bytes]":
        with self.log_file.open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "old_app", "worker", "--concurrency=1", "--pool=solo"],
                cwd=self.directory,
                env=self.environ,
                stdout=log,
                stderr=log,
            )
        self._masters.append(worker)
        return worker

    def python(self, text: str) -> None:
        ran = subprocess.run(
            [sys.executable, "-c", text],
            cwd=self.directory,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr

    def told(self, who: str, task: str) -> list[int]:
        path = self.directory / "told"
        lines: list[Any] = (
            [msgspec.json.decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        )
        return sorted(n for by, name, n in lines if (by, name) == (who, task))


@pytest.fixture
def moving(redis_server: RedisServer, tmp_path: Path) -> Iterator[Moving]:
    redis_server.empty()
    moving = Moving(tmp_path, redis_server.url)
    yield moving
    moving.close()
    redis_server.empty()


def test_both_side_by_side_and_then_the_rest_is_taken_over(moving: Moving, redis_server: RedisServer) -> None:
    worker = moving.old_worker()
    assert moving.tarry("start", "-d").status == 0
    moving.python("import old_app\nfrom old_tasks import *\nfor n in range(10): first.delay(n); second.delay(n)")
    until(lambda: moving.told("tarry", "third") == list(range(10)), 60)
    assert moving.told("celery", "first") == moving.told("celery", "second") == list(range(10))
    # Later ones, some of which the worker has in its memory when it is stopped: it puts them back.
    moving.python(
        "import old_app\nfrom old_tasks import *\n"
        "for n in range(10, 20): first.apply_async((n,), countdown=3600); second.apply_async((n,), countdown=1800)"
    )
    until(lambda: redis_server.call("HLEN", "unacked") == "20")
    worker.terminate()
    assert worker.wait(60) == 0, moving.log()
    moving.write("new_tasks.py", NEW_TASKS + MOVED)
    assert moving.tarry("reload").status == 0, moving.log()
    facts = moving.facts("import", "celery", moving.broker)
    assert (facts["stored"], facts["left"]) == (20, [])
    waiting = [job for job in moving.jobs() if job.state == "scheduled"]
    assert sorted(job.task for job in waiting) == ["tasks.first"] * 10 + ["tasks.second"] * 10
    # An hour is over.
    moving.said("jobs", "retry", "--task", "tasks.first", "--state", "scheduled", "--yes")
    moving.said("jobs", "retry", "--task", "tasks.second", "--state", "scheduled", "--yes")
    until(lambda: moving.told("tarry", "third") == list(range(20)), 60)
    until(lambda: moving.told("tarry", "first") == moving.told("tarry", "second") == list(range(10, 20)))
    assert moving.told("celery", "first") == list(range(10))
