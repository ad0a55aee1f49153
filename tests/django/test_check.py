"""`manage.py check`: each thing that is wrong has its id and a way out; and a check changes nothing."""

from contextlib import closing
from pathlib import Path

import pytest

from tarry.keeper.hosts import HostEntry
from tarry.store.opening import open_store
from tarry.store.queries.hosts import Host
from tests.django.projects import SETTINGS, make_project, manage


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_project(tmp_path)
    return tmp_path


def with_options(project: Path, options: str, more: str = "") -> None:
    text = SETTINGS.replace('"OPTIONS": {}', f'"OPTIONS": {options}') + more
    (project / "shop/settings.py").write_text(text)


@pytest.mark.parametrize(
    ("options", "id", "said"),
    [
        ('{"stroe": "redis://localhost"}', "E001", "OPTIONS has no stroe"),
        ('{"database": "none"}', "E002", "none"),
        ('{"store": "nonsense://"}', "E003", "nonsense"),
        ('{"store": "redis://127.0.0.1:1/0"}', "W001", "the store cannot be reached"),
        ('{"store": "sqlite:///jobs.db"}', "W004", "is another SQLite file"),
        ('{"store": f"sqlite:///{Path(__file__).parents[1]}/db.sqlite3"}', "W004", "is the database of"),
    ],
)
def test_what_is_wrong_has_an_id_and_a_way_out(project: Path, options: str, id: str, said: str) -> None:
    with_options(project, options)
    found = manage(project, "check", status=1 if id.startswith("E") else 0)
    assert f"(tarry.{id})" in found
    assert said in found
    assert "HINT: " in found.partition(f"(tarry.{id})")[2].partition("(tarry.")[0]


def test_before_and_after_migrate(project: Path) -> None:
    assert "(tarry.W006)" in manage(project, "check")
    assert not (project / "db.sqlite3").exists(), "a check makes no database"
    (project / "db.sqlite3").touch()
    assert "run manage.py migrate" in manage(project, "check")
    assert "tarry" not in manage(project, "makemigrations", "--check")
    assert "tarry" not in manage(project, "migrate", "-v0")
    assert "no issues" in manage(project, "check")


def test_queues_that_nobody_serves(project: Path) -> None:
    (project / "shop/settings.py").write_text(SETTINGS.replace('["default"]', '["default", "mail"]'))
    (project / "tarry.toml").write_text('[pools.default]\nqueues = ["default"]\n')
    found = manage(project, "check")
    assert "no pool of tarry.toml serves the queues mail" in found
    assert "(tarry.W002)" in found


def test_time_zones(project: Path) -> None:
    with_options(project, "{}", "USE_TZ = False\n")
    assert "(tarry.W005)" in manage(project, "check")


# Python 3.12.0 to 3.12.3 take ?1 for a name.
@pytest.mark.filterwarnings("ignore:Binding:DeprecationWarning")
def test_several_hosts_with_one_sqlite_file(project: Path) -> None:
    manage(project, "migrate", "-v0")
    with closing(open_store(f"sqlite:///{project}/db.sqlite3?shared=yes")) as store:
        for name in ("one", "two"):
            assert "(tarry.W003)" not in manage(project, "check")
            HostEntry(store, lambda name=name: Host(f"{name}|1:2:3", name)).register_host()  # type: ignore[misc]
        found = manage(project, "check")
    assert "masters on one, two use one SQLite file" in found
    assert "(tarry.W003)" in found


def test_a_message_can_be_silenced(project: Path) -> None:
    manage(project, "migrate", "-v0")
    with_options(project, '{"store": "sqlite:///jobs.db"}', 'SILENCED_SYSTEM_CHECKS = ["tarry.W004"]\n')
    assert "tarry.W004" not in manage(project, "check")
