"""Where Django is in use, its connections are closed around each job as around each request."""

import json
import subprocess
import sys
from pathlib import Path

from tests.servers.postgres import PostgresServer

STORY = """
import json, sys
from django.conf import settings
settings.configure(DATABASES={"default": json.loads(sys.argv[1])})
from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection
from tarry import App
from tarry.store.memory.store import MemoryStore

app = App(MemoryStore(), closures=True, retry=None)

def touch() -> bool:
    was_open = connection.connection is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return was_open

@app.task
def plain() -> bool:
    return touch()

@app.task(batch=2, wait=0)
def batch(numbers: list[int]) -> list[bool]:
    return [touch()] * len(numbers)

@app.task
async def coroutine() -> bool:
    return await sync_to_async(touch)()

@app.task
def restart() -> None:
    connection.ensure_connection()
    if connection.vendor == "sqlite":
        connection.connection.close()
    else:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    touch()  # as after a restart of the database: Django is not told

with app.running(threads=1):
    for task, args in ((plain, ()), (batch, (1,)), (coroutine, ())):
        print([task.enqueue(*args).result(timeout=30) for _ in range(3)])
    broken = restart.enqueue()
    try:
        broken.result(timeout=30)
    except Exception as error:
        print("failed")
    print(plain.enqueue().result(timeout=30))
app.close()
"""


def told(**database: object) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STORY, json.dumps(database)],
        timeout=250, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def on_sqlite(path: Path) -> list[str]:
    return told(ENGINE="django.db.backends.sqlite3", NAME=str(path))


def on_postgres(server: PostgresServer, max_age: int) -> list[str]:
    place = {"NAME": "postgres", "USER": "postgres", "HOST": "127.0.0.1", "PORT": server.port}
    return told(ENGINE="django.db.backends.postgresql", CONN_MAX_AGE=max_age, **place)


def test_a_connection_is_closed_after_each_job(tmp_path: Path) -> None:
    plain, batch, coroutine, *_ = on_sqlite(tmp_path / "django.db")
    assert plain == batch == coroutine == "[False, False, False]"


def test_after_one_that_broke_the_next_job_has_another(tmp_path: Path) -> None:
    *_, broke, after = on_sqlite(tmp_path / "django.db")
    assert (broke, after) == ("failed", "False")


def test_one_that_may_stay_stays_until_it_breaks(postgres_server: PostgresServer) -> None:
    plain, batch, _, broke, after = on_postgres(postgres_server, 600)
    assert (plain, batch) == ("[False, True, True]", "[True, True, True]")
    assert (broke, after) == ("failed", "False")
