"""`watch = true`: what is changed is served, and what is broken is not."""

from tests.cli.project import until
from tests.system.scene import APP, Scene

ASKED = (
    APP.replace("import os\n", "import os\nimport shop\n")
    + "\n\n@app.task\ndef ask() -> int:\n    return shop.number\n"
)
ON = "[master]\nwatch = true\n"


def shop(scene: Scene, text: str, name: str = "__init__.py") -> None:
    """Under another name at first, as many editors do it."""
    draft = scene.write("draft", text)
    (scene.directory / "shop").mkdir(exist_ok=True)
    draft.rename(scene.directory / "shop" / name)


def answers(scene: Scene) -> bytes:
    (id,) = scene.put("app.ask")
    until(lambda: scene.job(id).state == "done")
    return scene.job(id).note


def serves(scene: Scene, generation: int) -> None:
    """Nothing less, and nothing is under way."""
    until(lambda: (notice := scene.board().notice).generation >= generation and notice.done == notice.asked)
    assert scene.board().notice.trouble == ""


def test_new_code_answers_and_broken_code_does_not(scene: Scene) -> None:
    shop(scene, "number = 1\n")
    scene.write("app.py", ASKED)
    scene.settings(ON)
    scene.serve()
    assert answers(scene) == b"1"
    shop(scene, "number = 2\n")
    serves(scene, 2)
    assert answers(scene) == b"2"
    assert "changed, so a reload is wanted: shop/__init__.py\n" in scene.log()
    workers = scene.pids()
    shop(scene, "from shop.price import number\n")
    until(lambda: "No module named 'shop.price'" in scene.board().notice.trouble)
    shop(scene, "number = (\n", "price.py")
    until(lambda: "'(' was never closed" in scene.board().notice.trouble)
    assert scene.pids() == workers
    assert answers(scene) == b"2"
    shop(scene, "number = 3\n", "price.py")
    serves(scene, 3)
    assert answers(scene) == b"3"


def test_a_daemon_takes_up_its_settings_and_can_be_told_to_watch_no_more(scene: Scene) -> None:
    scene.settings(ON)
    scene.said("start", "-d")
    scene.settings(f"{ON}[pools.default]\nworkers = two\n")
    until(lambda: "tarry.toml" in scene.board().notice.trouble)
    scene.settings("[pools.default]\nworkers = 2\n")
    serves(scene, 2)
    until(lambda: len(scene.pids()) == 2 and not scene.board_seats("watcher"))
