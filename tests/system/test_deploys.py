"""When which code began to run, and which errors are new since then."""

import getpass
import os
import signal
from typing import Any

from msgspec import json

from tarry.runtime.pidfile import holder
from tarry.store.queries.deploys import PREFIX, read_deploys
from tests.cli.project import until
from tests.system.scene import Scene

CODE = """
from tarry import App

app = App(retry=None)

@app.task
def send(word):
    raise {error}(word)
"""


def shown(scene: Scene, *words: str) -> Any:
    ran = scene.tarry(*words, "--json")
    assert ran.status == 0, ran.err
    return json.decode(ran.out)


def test_each_start_and_reload_leaves_a_mark_and_errors_tell_theirs(scene: Scene) -> None:
    scene.settings('[master]\napp_version = "1.0"\n')
    scene.write("app.py", CODE.format(error="ValueError"))
    scene.serve()
    scene.ended(*scene.put("app.send", "a"))
    scene.settings('[master]\napp_version = "1.1"\n')
    scene.write("app.py", CODE.format(error="LookupError"))
    assert scene.tarry("reload").status == 0
    scene.ended(*scene.put("app.send", "b"))
    until(lambda: len(shown(scene, "errors")["errors"]) == 2)
    until(lambda: len(shown(scene, "deploys")["deploys"]) == 2)
    marks = [(one["generation"], one["kind"], one["version"]) for one in shown(scene, "deploys")["deploys"]]
    assert marks == [(2, "reload", "1.1"), (1, "start", "1.0")]
    user = getpass.getuser()
    assert [one["by"].removeprefix("root as ") for one in shown(scene, "deploys")["deploys"]] == [user, user]
    began = {one["type"]: one["deploy"]["version"] for one in shown(scene, "errors")["errors"]}
    assert began == {"LookupError": "1.1", "ValueError": "1.0"}
    with scene.store() as store:
        assert all(one.ticks for one in read_deploys(store))
    assert [one["type"] for one in shown(scene, "errors", "--new-since", "deploy")["errors"]] == ["LookupError"]
    scene.stopped()


def test_a_keeper_that_is_killed_leaves_no_second_mark(scene: Scene) -> None:
    scene.serve()
    until(lambda: shown(scene, "deploys")["deploys"])
    (keeper,) = scene.pids("keeper")
    scene.kill(keeper)
    until(lambda: scene.pids("keeper") not in ([], [keeper]))
    scene.ended(*scene.put("app.add", 1, 2))
    with scene.store() as store:
        assert len(store.kv_list(PREFIX)) == 1
    scene.stopped()


def test_a_signal_says_nobody_and_an_upgrade_is_told_apart(scene: Scene) -> None:
    scene.settings('[master]\napp_version = "1.0"\n')
    scene.serve()
    until(lambda: shown(scene, "deploys")["deploys"])
    scene.settings('[master]\napp_version = "2.0"\n')
    master = holder(scene.pid_file)
    assert master
    os.kill(master, signal.SIGHUP)
    until(lambda: len(shown(scene, "deploys")["deploys"]) == 2)
    scene.settings('[master]\napp_version = "1.0"\n')
    assert scene.tarry("upgrade").status == 0
    until(lambda: len(shown(scene, "deploys")["deploys"]) == 3)
    found = [(one["kind"], bool(one["by"]), one["is_rollback"]) for one in shown(scene, "deploys")["deploys"]]
    assert found == [("upgrade", True, True), ("reload", False, False), ("start", True, False)]
    scene.stopped()
