"""Tasks that start children of their own and end them: the child gets the signal, and the worker does not."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from msgspec import json

from tests.cli.project import until
from tests.system.scene import APP, Scene

CHILDREN = """

import multiprocessing
import subprocess
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

FORK, SPAWN = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn")


def end(process) -> int:
    process.start()
    process.terminate()
    process.join()
    return process.exitcode


@app.task
def forked() -> int:
    return end(FORK.Process(target=time.sleep, args=(60,)))


@app.task
def spawned() -> int:
    return end(SPAWN.Process(target=time.sleep, args=(60,)))


@app.task
async def from_the_loop() -> int:
    return await asyncio.to_thread(end, FORK.Process(target=time.sleep, args=(60,)))


@app.task
def pool() -> list[int]:
    with FORK.Pool(2) as workers:
        return workers.map(abs, [-1, -2])


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@app.task
def executor() -> str:
    with ProcessPoolExecutor(1, FORK) as workers:
        try:
            return workers.submit(kill_itself).result()
        except BrokenProcessPool:
            return "broken"


@app.task
def by_hand() -> int:
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@app.task
def fork_that_returns() -> int:
    child = os.fork()
    if child == 0:
        return 1
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@app.task
def command() -> int:
    process = subprocess.Popen(["sleep", "60"])
    process.terminate()
    return process.wait()
"""
RESULTS = {
    "forked": b"-15", "spawned": b"-15", "from_the_loop": b"-15", "pool": b"[1,2]", "executor": b'"broken"',
    "by_hand": b"-15", "fork_that_returns": b"0", "command": b"-15",
}  # fmt: skip
WAYS = {
    "worker": ["-m", "tarry", "worker"],
    "run": ["-c", "import app; app.app.run()"],
    "running": ["-c", "import app, time\nwith app.app.running(): time.sleep(600)"],
}


@contextlib.contextmanager
def runs(scene: Scene, way: str) -> Iterator[None]:
    if way == "master":
        scene.serve()
        yield
        assert scene.tarry("stop").status == 0
        return
    process = subprocess.Popen([sys.executable, *WAYS[way]], cwd=scene.directory, env=scene.environ)
    yield
    process.terminate()
    process.wait(30)


@pytest.mark.parametrize("way", ["master", *WAYS])
def test_the_jobs_end_and_so_do_their_neighbours(scene: Scene, way: str) -> None:
    scene.write("app.py", APP + CHILDREN)
    scene.write("tarry.toml", f'app = "app:app"\nstore = "sqlite:///{scene.database}"\n[pools.default]\nworkers = 1\n')
    neighbours = scene.put("app.await_gate", "go", times=3)
    with runs(scene, way):
        scene.begun(3)
        jobs = {name: scene.put(f"app.{name}")[0] for name in RESULTS}
        until(lambda: all(scene.job(job).state.finished for job in jobs.values()))
        ends = {name: (scene.job(job).state, scene.job(job).attempt, scene.job(job).note) for name, job in jobs.items()}
        assert ends == {name: ("done", 1, result) for name, result in RESULTS.items()}
        scene.open("go")
        until(scene.all_finished)
        assert scene.times("began") == dict.fromkeys(neighbours, 1), "the worker was replaced"


SPOILT = """

async def _handle_int() -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, asyncio.current_task().cancel)
    tell("began")
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)


@app.task
def own_loop() -> None:
    asyncio.run(_handle_int())


@app.task
def ignore() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    tell("began")


@app.task
def no_wakeup() -> None:
    signal.set_wakeup_fd(-1)
    tell("began")


@app.task
async def version() -> list[float]:
    began = time.time()
    await asyncio.sleep(0.05)
    return [VERSION, began]
"""


@pytest.mark.parametrize(("spoil", "end"), [("own_loop", "stop"), ("ignore", "stop"), ("no_wakeup", "quit")])
def test_a_task_that_changes_the_handlers_keeps_no_order_from_working(scene: Scene, spoil: str, end: str) -> None:
    scene.settings("[pools.default]\nworkers = 1\n")
    scene.write("app.py", f"{APP}{SPOILT}\nVERSION = 1\n")
    master = scene.serve()
    (first,) = scene.put(f"app.{spoil}")
    scene.begun(1)
    old = scene.put("app.version", times=200)
    scene.write("app.py", f"{APP}{SPOILT}\nVERSION = 2\n")
    assert scene.tarry("reload", "--timeout", "30s").status == 0
    reloaded_at = time.time()
    jobs = [*old, *scene.put("app.version", times=16)]
    until(lambda: all(scene.job(job).state.finished for job in jobs))
    late = [version for version, began in (json.decode(scene.job(job).note) for job in jobs) if began > reloaded_at]
    assert len(late) >= 16
    assert set(late) == {2}
    scene.open("go")
    until(scene.all_finished)
    assert (scene.job(first).state, scene.job(first).attempt) == ("done", 1), scene.job(first).note
    scene.put(f"app.{spoil}")
    scene.begun(2)
    assert scene.tarry(end).status == 0
    assert master.wait(10) == 0
