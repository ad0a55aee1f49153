import os
import re
import sqlite3
from pathlib import Path

import pytest

from tests.cli.project import until
from tests.system.scene import APP, Scene

WAYS = [("start",), ("start", "-d")]


def test_a_day_in_the_foreground(scene: Scene) -> None:
    master = scene.serve()
    id = scene.enqueue("app.add", "[2, 3]")
    until(lambda: scene.job(id).state == "done")
    assert scene.job(id).note == b"5"
    assert scene.said("jobs", "show", id).partition("\nattempts\n")[0].endswith("result    5")
    until(lambda: scene.children()[0].processed == 1)
    assert scene.said("stop") == "stopped"
    assert master.wait(20) == 0
    assert not scene.processes()
    assert scene.tarry("status").status == 3


def test_a_day_as_a_daemon(scene: Scene) -> None:
    assert re.fullmatch(r"app:app serves: master \d+, log .*", scene.said("start", "-d"))
    told = scene.facts("status")
    assert (told["state"], told["alive"]) == ("serving", True)
    id = scene.enqueue("app.add", "[2, 3]")
    until(lambda: scene.job(id).state == "done")
    assert scene.said("stop") == "stopped"
    until(lambda: not scene.processes())
    left = {path.name for path in (scene.directory / "run").iterdir()}
    assert left - {f"{scene.pid_file.name}.stores"} == {scene.pid_file.with_suffix(".log").name}


@pytest.mark.parametrize("words", WAYS)
def test_a_second_start_is_refused_with_the_pid(scene: Scene, words: tuple[str, ...]) -> None:
    master = scene.serve()
    assert scene.refused(*words) == f"a master is already running, pid {master.pid} ({scene.pid_file})"
    assert scene.facts("status")["pid"] == master.pid
    scene.stopped()


def test_two_starts_at_once_and_one_wins(scene: Scene) -> None:
    masters = [scene.start() for _ in range(3)]
    until(lambda: [master.poll() for master in masters].count(None) == 1 and scene.pids())
    assert sorted(master.poll() or 0 for master in masters) == [0, 1, 1]
    assert scene.log().count("a master is already running, pid") == 2
    scene.stopped()


def test_many_processes_make_a_new_store_at_once(scene: Scene) -> None:
    for name in ("a", "b", "c"):
        scene.settings(f'store = "sqlite:///{name}.db"\n[pools.default]\nworkers = 12\n')
        scene.serve()
        assert len(scene.pids()) == 12
        scene.said("quit")


@pytest.mark.parametrize("words", WAYS)
def test_an_app_that_cannot_be_imported(scene: Scene, words: tuple[str, ...]) -> None:
    path = scene.write("app.py", "from tarry import App\n\napp = App()\nimport nowhere\n")
    ran = scene.tarry(*words)
    assert ran.status == 1
    last = ran.err.splitlines()[-1]
    assert last.startswith("tarry: ")
    assert last.endswith(
        f"could not start: app app:app cannot be imported: ModuleNotFoundError: No module named 'nowhere' ({path}:4)"
    )
    assert "Traceback" not in ran.err
    until(lambda: not scene.processes())
    assert not scene.pid_file.exists()


@pytest.mark.parametrize("words", WAYS)
def test_a_store_that_cannot_be_opened(scene: Scene, words: tuple[str, ...]) -> None:
    with sqlite3.connect(scene.database) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = scene.database.read_bytes()
    ran = scene.tarry(*words)
    assert ran.status == 1
    last = ran.err.splitlines()[-1]
    assert f"{scene.database} is a database of another program; give tarry a file of its own, or share" in last
    assert "Traceback" not in ran.err
    until(lambda: not scene.processes())
    assert scene.database.read_bytes() == before


@pytest.mark.parametrize("words", WAYS)
def test_a_store_in_a_directory_that_is_not_there(scene: Scene, words: tuple[str, ...]) -> None:
    scene.settings('store = "sqlite:///none/tarry.db"\n')
    ran = scene.tarry(*words)
    assert ran.status == 1
    assert ran.err.splitlines()[-1].endswith("/none does not exist; create it first")
    until(lambda: not scene.processes())


def test_jobs_of_a_release_to_come_wait_for_it(scene: Scene) -> None:
    first = scene.serve()
    id = scene.tarry("enqueue", "app.newcomer", "7", "--force").out.strip()
    until(lambda: scene.job(id).state == "scheduled" and scene.job(id).epoch == 1)
    assert "no task app.newcomer in this app" in scene.log()
    assert "app.newcomer: 1 job waits" in scene.tarry("check").out
    scene.write("app.py", APP + "\n\n@app.task\ndef newcomer(n: int) -> int:\n    return n\n")
    scene.said("quit")
    assert first.wait(20) == 0
    scene.serve()
    until(lambda: scene.job(id).state == "done")
    assert (scene.job(id).note, scene.job(id).attempt) == (b"7", 1)
    assert "All is well." in scene.said("check")


@pytest.mark.parametrize("words", WAYS)
@pytest.mark.parametrize(
    ("setting", "why"),
    [('retry_when = "res.code =="', r"\.retry_when, at \d+: .*"), ("limit = 3", r"\.limit; known: .*")],
)
def test_a_wrong_setting_stands_alone_with_its_place(
    scene: Scene, words: tuple[str, ...], setting: str, why: str
) -> None:
    scene.settings(f'[tasks."order"]\nurl = "https://shop.example/"\n{setting}\n')
    ran = scene.tarry(*words)
    assert ran.status == 1
    last = ran.err.splitlines()[-1]
    assert re.fullmatch(rf"tarry: tarry\.toml:\d+: (unknown setting )?tasks\.order{why}", last), last
    assert "could not start" not in ran.err


LOOKING = """
import sys
from pathlib import Path

EARLY = {"tarry.store.sqlite.store", "tarry.push.catalog", "tarry.server.serving.application"}
Path(f"child-{__import__('os').getpid()}").write_text(str(EARLY <= sys.modules.keys()))
"""


def test_what_all_children_need_is_imported_once(scene: Scene) -> None:
    """By the master, which has no thread of its own all the same, and nothing of the store open."""
    scene.is_real = True
    scene.write("app.py", LOOKING + APP)
    scene.settings('[server]\nhttp = "unix:http.sock"')
    master = scene.serve()
    said = {file.name: file.read_text() for file in scene.directory.glob("child-*")}
    assert set(said.values()) == {"True"}
    assert len(said) >= 3
    assert len([*Path(f"/proc/{master.pid}/task").iterdir()]) == 1
    files = [os.readlink(fd) for fd in Path(f"/proc/{master.pid}/fd").iterdir()]
    assert [file for file in files if str(scene.database) in file] == []
