"""An app written for Celery, its imports changed, under a master: all that it asks for is done."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarry.store.opening import open_store
from tarry.store.rules.base import Query
from tests.cli.project import Project, alive, until
from tests.system.celery_shop import APP, PRODUCER, TASKS, moved

EXPECTED = {
    "delay": ["SUCCESS", 3],
    "countdown": ["SUCCESS", 4],
    "eta": ["SUCCESS", 5],
    "priority": ["SUCCESS", 6],
    "queue": ["SUCCESS", 7],
    "retry": ["SUCCESS", ["ann@example.org", 2, "mail"]],
    "autoretry": ["SUCCESS", ["u", 1]],
    "soft limit": ["SUCCESS", "stopped"],
    "link": ["SUCCESS", 9],
    "by name": ["SUCCESS", 10],
    "version": ["SUCCESS", 1],
    "chain": ["SUCCESS", 4],
    "group": ["SUCCESS", [0, 2, 4, 6, 8]],
    "chord": ["SUCCESS", 15],
    "mixed": ["SUCCESS", None],
}
SEND = """
import json, sys
from shop.tasks import *
print(json.dumps([each.id for each in eval(sys.argv[1])]))
"""
INSPECT = """
import json
from shop.celery import app
found = app.control.inspect()
print(json.dumps({"ping": found.ping(), "stats": found.stats(), "active": found.active()}))
"""
ASK = """
import json, sys
from shop.tasks import *
print(json.dumps([[each.get(timeout=90), each.state] for each in map(app.AsyncResult, sys.argv[1:])]))
"""


class Shop(Project):
    """The app in a directory, with the store at that URL."""

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory, "")
        (directory / "shop").mkdir()
        self.url = url
        self.write("shop/__init__.py", "")
        self.write("shop/celery.py", moved(APP))
        self.write("shop/tasks.py", moved(TASKS))
        self.write(
            "tarry.toml",
            f'app = "shop.celery:app"\nstore = "{url}"\n[pools.default]\nworkers = 2\nqueues = ["celery", "mail"]\n'
            'lease = "4s"\n',
        )

    def python(self, text: str, *words: str) -> Any:
        """What a program of the app prints."""
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", moved(text), *words],
            cwd=self.directory,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr + self.log()
        return msgspec.json.decode(ran.stdout)

    def told(self, what: str) -> list[dict[str, Any]]:
        path = self.directory / "celery_ledger"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        found = [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]
        return [line for line in found if line["what"] == what]

    def begin(self) -> None:
        assert self.tarry("start", "-d").status == 0
        until(lambda: len(self.pids()) == 2)


@pytest.fixture(params=["sqlite", "redis_server", "postgres_server"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/tarry.db"
    elif request.param == "redis_server":
        request.getfixturevalue("redis_server").empty()
        url = request.getfixturevalue("redis_server").url
    else:
        url = request.getfixturevalue("postgres_url")
    shop = Shop(tmp_path, url)
    yield shop
    shop.close()


def test_all_that_the_app_asks_for_is_done(shop: Shop) -> None:
    shop.begin()
    results = shop.python(PRODUCER)
    assert {name: results[name] for name in EXPECTED} == EXPECTED
    assert results["never"] == ["FAILURE", "for ever"]
    assert results["expires"][0] == "REVOKED"
    until(lambda: {line["mark"] for line in shop.told("note")} == {"linked", "both"})
    until(lambda: shop.told("errback"))
    assert shop.told("errback") == [{**shop.told("errback")[0], "task": "shop.tasks.never", "error": "for ever"}]
    assert [line["task"] for line in shop.told("failure")] == ["shop.tasks.never"]
    until(lambda: {line["where"] for line in shop.told("tick")} == {"celery", "mail"})
    assert len({line["pid"] for line in shop.told("worker begins")}) == 2
    states = Counter((line["task"].rpartition(".")[2], line["state"]) for line in shop.told("postrun"))
    assert (states["send_mail", "RETRY"], states["send_mail", "SUCCESS"]) == (4, 2)
    assert (states["never", "RETRY"], states["never", "FAILURE"]) == (1, 1)
    assert shop.tarry("stop").status == 0
    assert len(shop.told("worker ends")) == 2
    assert_nothing_is_left(shop)


def assert_nothing_is_left(shop: Shop) -> None:
    """Nothing but ticks is left unfinished."""
    store = open_store(shop.url)
    try:
        left = [job for job in store.find(Query(limit=1000)) if not job.state.finished]
    finally:
        store.close()
    assert {job.task.partition(":")[0] for job in left} <= {"shop.tasks.tick", "tarry.compat.celery.beat"}


def what_inspect_finds(shop: Shop, held: str) -> Any:
    """None: the master has not yet told the store of both workers, and that one runs this job."""
    looks = shop.python(INSPECT)
    active = looks["active"] or {}
    # They are asked one after the other, and each may have found fewer than the next.
    is_known = all(len(looks[what] or {}) == 2 for what in ("ping", "stats", "active"))
    is_known = is_known and any(job["id"] == held for jobs in active.values() for job in jobs)
    return looks if is_known else None


def test_a_killed_worker_and_a_reload_lose_nothing_and_count_as_no_retry(shop: Shop) -> None:
    shop.begin()
    ids = shop.python(SEND, "[hold.delay('go'), *(add.delay(n, n) for n in range(20))]")
    until(lambda: shop.told("holds"))
    looks = until(lambda: what_inspect_finds(shop, ids[0]))
    victim = shop.told("holds")[0]["pid"]
    assert victim in [worker["pid"] for worker in looks["stats"].values()]
    held = [job for jobs in looks["active"].values() for job in jobs if job["name"] == "shop.tasks.hold"]
    assert [(job["id"], job["args"]) for job in held] == [(ids[0], ["go"])]
    os.kill(victim, signal.SIGKILL)
    until(lambda: not alive(victim))
    until(lambda: len(shop.told("holds")) == 2)
    shop.write("shop/tasks.py", moved(TASKS).replace("VERSION = 1", "VERSION = 2"))
    more = shop.python(SEND, "[send_mail.delay('cy'), chain(add.s(1, 1), add.s(1)).delay().results[-1]]")
    shop.write("go", "")
    assert shop.tarry("reload").status == 0, shop.log()
    again = shop.python(SEND, "[version.delay()]")
    answers = shop.python(ASK, *ids, *more, *again)
    assert answers[0] == [["go", 0], "SUCCESS"]
    assert answers[1:21] == [[n + n, "SUCCESS"] for n in range(20)]
    assert answers[21:] == [[["cy", 2, "mail"], "SUCCESS"], [3, "SUCCESS"], [2, "SUCCESS"]]
    assert shop.tarry("stop").status == 0
