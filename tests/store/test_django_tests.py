"""Under Django's own tests jobs go to the test database, or nowhere."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.servers.postgres import PostgresServer

STORY = """
import json, sys
from django.conf import settings
database, url, early = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3] == "early"
settings.configure(DATABASES={"default": database}, INSTALLED_APPS=[])
import django
django.setup()
from django.db import connection
from django.test.utils import setup_databases, setup_test_environment, teardown_databases
from tarry import App, TarryError
app = App(url) if early else None
setup_test_environment()
old = setup_databases(verbosity=0, interactive=False)
app = app or App(url)
@app.task(name="t")
def task() -> None: ...
try:
    task.enqueue()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM " + sys.argv[4])
        print("in the test database:", cursor.fetchone()[0])
except TarryError as error:
    print(error)
app.close()
connection.close()
teardown_databases(old, verbosity=0)
"""


def told(database: Mapping[str, object], url: str, table: str = "tarry_job", early: bool = True) -> str:
    words = [json.dumps(dict(database)), url, "early" if early else "late", table]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STORY, *words],
        timeout=250, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_real_file_is_refused_while_the_tests_are_in_memory(tmp_path: Path) -> None:
    real = tmp_path / "shop.db"
    said = told({"ENGINE": "django.db.backends.sqlite3", "NAME": str(real)}, f"sqlite:///{real}?shared=yes")
    assert said.startswith(
        f"sqlite:///{real}?shared=yes is Django's real database, and its tests have theirs in memory"
    )
    assert not real.exists()


def test_the_file_of_the_tests_is_used(tmp_path: Path) -> None:
    real, tests = tmp_path / "shop.db", tmp_path / "test.db"
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(real), "TEST": {"NAME": str(tests)}}
    assert told(database, f"sqlite:///{real}?shared=yes") == "in the test database: 1"
    assert not real.exists()


def test_another_file_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "jobs.db"
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.db")}
    told(database, f"sqlite:///{other}", table="sqlite_master")
    assert other.exists()


def test_the_test_database_of_a_server_is_used(postgres_server: PostgresServer) -> None:
    database = {
        "ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres", "HOST": "127.0.0.1",
        "PORT": postgres_server.port,
    }  # fmt: skip
    url = f"postgresql://postgres@127.0.0.1:{postgres_server.port}/postgres?schema=django_tests"
    for early, test in ((True, {}), (False, {}), (True, {"NAME": "of_the_tests"})):
        said = told(database | {"TEST": test}, url, "django_tests.job", early)
        assert said == "in the test database: 1"
