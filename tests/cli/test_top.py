"""`tarry top` on a real terminal, with a real master and a real store."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tarry.keeper.hosts import HostEntry
from tarry.store.queries.hosts import Host, PoolFigures
from tarry.store.rules import ids
from tarry.store.sqlite.store import SqliteStore
from tests.cli.project import Project, until
from tests.cli.terminal import DOWN, ESCAPE, UP, Terminal
from tests.servers.redis import RedisServer
from tests.servers.server import Missing

APP = """
import asyncio
import time
from pathlib import Path
from uuid import uuid4

from tarry import App

app = App()
HERE = Path(__file__).parent

@app.task
def wait(gate: str) -> None:
    while not (HERE / gate).exists():
        time.sleep(0.01)

@app.task(queue="mail")
async def send(gate: str) -> None:
    while not (HERE / gate).exists():
        await asyncio.sleep(0.02)

@app.task
def add(a: int, b: int) -> int:
    return a + b
"""

Opened = Callable[..., Terminal]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path, APP)
    yield project
    project.close()


@pytest.fixture
def top(project: Project) -> Iterator[Opened]:
    """Starts `tarry top` in a terminal of its own."""
    terminals: list[Terminal] = []

    def opened(*words: str, at: Project = project, **rest: object) -> Terminal:
        terminals.append(Terminal(at, *words, **rest))  # type: ignore[arg-type]
        return terminals[-1]

    yield opened
    for terminal in terminals:
        terminal.close()


def test_a_worker_its_job_and_the_queues(project: Project, top: Opened) -> None:
    master = project.serve()
    (job,) = project.put("app.wait", "gate")
    project.put("app.send", "gate", queue="mail")
    project.put("app.add", 1, 2, delay="1h", times=3)
    (worker,) = project.pids()
    terminal = top(width=140, height=36)
    terminal.line("5 min ", "/min in")
    terminal.line("in/min", "█", "5 in 30 min")
    terminal.line("tarry top", f"master {master.pid} serving")
    terminal.line("pools", "default 1 of 1 busy")
    terminal.line("default.1", str(worker), "ready", " app.wait")
    terminal.line("app.wait", job, "default", f":{worker}")
    terminal.line("app.send", "mail")
    until(lambda: terminal.line("› default", " 3 ").split()[1:5] == ["default", "·", "3", "1"])
    terminal.line("store", str(project.database))
    project.write("gate", "")
    terminal.line("0 running")
    terminal.without("app.wait")
    until(lambda: terminal.line("default.1").split()[-1] == "·")
    terminal.press("q")
    assert terminal.ended() == 0


def test_depth_and_rates_follow_what_happens(project: Project, top: Opened) -> None:
    project.put("app.add", 1, 2, queue="slow", times=5)
    terminal = top("--interval", "0.2")
    terminal.line("slow", " 5 ")
    terminal.line("tarry top", "no master runs here")
    project.put("app.add", 1, 2, queue="slow", times=1200)
    assert terminal.line("slow", "1,205").split()[-2] not in ("-", "0")
    project.said("queues", "purge", "slow", "--yes")
    terminal.line("0 ready")


def test_a_queue_is_paused_and_resumed_from_the_keyboard(project: Project, top: Opened) -> None:
    project.put("app.add", 1, 2)
    project.put("app.send", "x", queue="mail")
    terminal = top()
    terminal.line("› default")
    terminal.line("  mail")
    terminal.press(DOWN)
    terminal.line("› mail")
    terminal.press("p")
    terminal.line("queue mail paused")
    terminal.line("› mail", "paused")
    assert _paused(project) == {"default": False, "mail": True}
    terminal.press("r")
    terminal.line("queue mail resumed")
    assert not _paused(project)["mail"]
    terminal.press(UP)
    terminal.line("› default")


def _paused(project: Project) -> dict[str, bool]:
    with project.store() as store:
        return store.queues()


def test_a_job_is_cancelled_only_when_it_is_confirmed(project: Project, top: Opened) -> None:
    project.serve()
    (job,) = project.put("app.wait", "never")
    terminal = top()
    terminal.line("default.1", "app.wait")
    terminal.press("\t", "c")
    terminal.line(f"cancel, y or n?  app.wait {job}")
    terminal.press("x")
    terminal.line("not cancelled")
    assert project.job(job).state == "running"
    terminal.press("c")
    terminal.line(f"cancel, y or n?  app.wait {job}")
    terminal.press("y")
    terminal.line(f"app.wait {job} cancelled")
    assert project.job(job).state == "cancelled"
    terminal.press("x")
    terminal.without("app.wait")
    until(lambda: terminal.line("default.1").split()[-1] == "·")


def test_a_job_that_no_scoreboard_shows_is_cancelled_in_the_jobs(project: Project, top: Opened) -> None:
    project.serve()
    (job,) = project.put("app.send", "never", queue="mail")
    terminal = top()
    terminal.line("app.send", "mail")
    terminal.press("3", "c")
    terminal.line(f"cancel, y or n?  app.send {job}")
    terminal.press("y")
    terminal.line("nothing here")
    assert project.job(job).state == "cancelled"


def test_filter_sort_and_help(project: Project, top: Opened) -> None:
    for queue, count in (("alpha", 1), ("beta", 3), ("gamma", 2)):
        project.put("app.add", 1, 2, queue=queue, times=count)
    project.put("other.task", queue="alpha")
    terminal = top()
    terminal.line("gamma")
    terminal.press("s", "s", "s")
    terminal.line("ready▼")
    until(lambda: _order(terminal, "alpha", "beta", "gamma") == ["beta", "alpha", "gamma"])
    terminal.press("S")
    terminal.line("ready▲")
    until(lambda: _order(terminal, "alpha", "beta", "gamma") == ["alpha", "gamma", "beta"])
    terminal.press("/", "o", "t", "h", "e", "r")
    terminal.line("show only: other_")
    terminal.without("beta")
    terminal.line("alpha")
    terminal.press("\r")
    terminal.line("only 'other' (Esc: all)")
    terminal.press(ESCAPE)
    terminal.line("gamma")
    terminal.press("\x1b[200~q\x1b[201~", "/", "\x1b[200~beta\n\x1b[201~")
    terminal.line("show only: beta_")
    terminal.press(ESCAPE, "?")
    terminal.line("cancel the chosen job; asks first")
    terminal.press(" ")
    terminal.line("gamma")


def _order(terminal: Terminal, *names: str) -> list[str]:
    """Those that stand on the screen, from the top."""
    lines = terminal.lines()
    first = {name: n for n, line in reversed([*enumerate(lines)]) for name in names if name in line}
    return sorted(first, key=first.__getitem__)


@pytest.mark.parametrize(("key", "status"), [("q", 0), ("\x03", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_it_leaves_the_terminal_as_it_was(project: Project, top: Opened, key: str | int, status: int) -> None:
    project.put("app.add", 1, 2)
    terminal = top()
    terminal.line("› default")
    assert terminal.modes() != terminal.modes_before
    assert b"\x1b[?1049h" in terminal.written
    if isinstance(key, str):
        terminal.press(key)
    else:
        terminal.process.send_signal(key)
    assert terminal.ended() == status
    assert terminal.modes() == terminal.modes_before
    after = terminal.written.rpartition(b"\x1b[?1049h")[2]
    for undone in (b"\x1b[?1049l", b"\x1b[?2004l", b"\x1b[?25h"):
        assert undone in after
    assert not terminal.screen.mode & {2004 << 5}
    assert b"Traceback" not in terminal.written


def test_it_ends_with_its_terminal(project: Project, top: Opened) -> None:
    terminal = top()
    terminal.line("tarry top")
    terminal.vanish()
    terminal.process.wait(30)


def test_another_size(project: Project, top: Opened) -> None:
    project.put("app.add", 1, 2)
    terminal = top()
    terminal.line("› default")
    terminal.resize(180, 40)
    terminal.line("queue", "cancelled")
    assert until(lambda: terminal.lines()[39].startswith(" q quit"))
    terminal.resize(60, 12)
    terminal.without("cancelled")
    assert until(lambda: terminal.lines()[11].startswith(" q quit"))
    terminal.resize(20, 5)
    terminal.line("40 x 8 at least")
    terminal.resize(80, 24)
    terminal.line("› default")


def test_names_with_escapes_are_only_shown(project: Project, top: Opened) -> None:
    bad = "\x1b[2J\x1b]0;owned\x07"
    project.put("task" + bad, queue="queue" + bad, key="k" + bad)
    project.put("task\u202eevil", queue="幅広い名前のキュー" * 5)
    terminal = top(width=120)
    terminal.line("queue\\x1b[2J\\x1b]0;owned")
    assert "…" in terminal.line("幅広い")
    assert bad.encode() not in terminal.written
    assert "\u202e".encode() not in terminal.written
    assert b"\x1b]" not in terminal.written
    heading = terminal.line("queue", "ready").index("ready")
    assert len(terminal.line("幅広い")) <= 120
    assert terminal.screen.display[0].strip().startswith("tarry top")
    assert heading > 0


def test_without_a_master(project: Project, top: Opened) -> None:
    project.put("app.add", 1, 2)
    terminal = top()
    terminal.line("no master runs here")
    terminal.line("› default", " 1 ")
    master = project.serve()
    terminal.line(f"master {master.pid} serving")
    project.put("app.wait", "never")
    terminal.line("default.1", "app.wait")
    os.kill(master.pid, signal.SIGKILL)
    terminal.line(f"master {master.pid} is gone")


def test_other_hosts(project: Project, top: Opened) -> None:
    project.serve()
    terminal = top(width=120)
    terminal.line("default.1", "ready")
    assert not any(line.startswith(("  host", "▸ host")) for line in terminal.lines())
    pools = [PoolFigures("web", workers=4, busy=3, processed=70)]
    other = Host("db2|b.1:77:1:1", "db2", 77, "/run/tarry.pid", "1", "serving", 1, 0, pools)
    with project.store() as store:
        HostEntry(store, lambda: other).register_host()
    until(lambda: terminal.line("  db2", "serving").split()[1:5] == ["serving", "77", "4", "3"])
    terminal.press("4", "/", "d", "b", "2", "\r")
    terminal.line("› db2")


def test_a_reload_that_comes_to_nothing(project: Project, top: Opened) -> None:
    master = project.serve()
    terminal = top(width=140)
    terminal.line(f"master {master.pid} serving")
    project.write("app.py", "raise RuntimeError('half an app')\n")
    master.send_signal(signal.SIGHUP)
    terminal.line("reload", "! came to nothing", "half an app")


def test_a_store_of_which_a_part_is_away(project: Project, top: Opened) -> None:
    project.settings('store = ["sqlite:///tarry.db", "sqlite:///gone/tarry.db"]\n')
    project.put("app.add", 1, 2)
    terminal = top(width=160)
    terminal.line("store", "! in part only", "gone/tarry.db")
    terminal.line("› default", " 1 ")
    terminal.press("p")
    terminal.line("queue default paused only in part")
    assert _paused(project) == {"default": True}


def test_a_store_that_vanishes_and_comes_back(project: Project, top: Opened) -> None:
    data = project.directory / "data"
    data.mkdir()
    project.database = data / "tarry.db"
    project.settings('store = "sqlite:///data/tarry.db"\n')
    project.put("app.add", 1, 2)
    terminal = top("--interval", "0.2")
    terminal.line("› default", " 1 ")
    data.rename(project.directory / "moved")
    assert "was moved or deleted" in terminal.line("store", "! away for").replace("…", "was moved or deleted")
    terminal.line("› default", " 1 ")
    terminal.press("p")
    terminal.line("default not paused")
    (project.directory / "moved").rename(data)
    terminal.without("! away")
    assert _paused(project) == {"default": False}
    project.put("app.add", 1, 2, times=4)
    terminal.line("› default", " 5 ")


def test_a_store_that_is_not_there_yet(project: Project, top: Opened) -> None:
    project.settings('store = "sqlite:///data/tarry.db"\n')
    terminal = top()
    terminal.line("store", "! away for")
    (project.directory / "data").mkdir()
    SqliteStore(project.directory / "data/tarry.db").close()
    terminal.line("store", "sqlite:///")
    terminal.without("! away")


def test_a_store_is_not_made_by_who_watches_it(project: Project, top: Opened) -> None:
    terminal = top()
    terminal.line("store", "! away for")
    assert not project.database.exists()
    project.put("app.add", 1)
    terminal.line("store", "sqlite:///")
    terminal.without("! away")


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    try:
        server.start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield server
    server.stop()


def test_a_server_that_hangs_or_is_killed_leaves_the_keys_alive(
    project: Project, top: Opened, own_redis: RedisServer
) -> None:
    project.settings(f'store = "{own_redis.url}?timeout=1s"\n')
    project.enqueue("app.add", "[1, 2]")
    terminal = top()
    terminal.line("› default", " 1 ")
    own_redis.halt()
    terminal.line("store", "! away for")
    terminal.press("?")
    terminal.line("asks first")
    terminal.press("?")
    own_redis.resume()
    terminal.without("! away")
    own_redis.kill()
    terminal.line("store", "! away for")
    terminal.press("q")
    assert terminal.ended() == 0


@pytest.mark.parametrize("server", ["redis_server", "postgres_server", "mariadb_server"])
def test_on_a_server(project: Project, top: Opened, request: pytest.FixtureRequest, server: str) -> None:
    project.settings(f'store = "{request.getfixturevalue(server).url}"\n')
    queue = f"q{uuid4()}"[:12]
    jobs = [project.enqueue("app.add", "1", "2", "--queue", queue) for _ in range(2)]
    terminal = top(width=120)
    terminal.press("/", *queue, "\r")
    terminal.line(f"› {queue}", " 2 ")
    terminal.press("p")
    terminal.line(f"› {queue}", "paused")
    facts = project.facts("top")
    assert facts["store_trouble"] == ""
    assert [(found["ready"], found["paused"]) for found in facts["queues"] if found["queue"] == queue] == [(2, True)]
    project.said("jobs", "delete", *jobs, "--yes")
    project.said("queues", "resume", queue)


def test_an_app_that_cannot_be_imported(project: Project, top: Opened) -> None:
    project.put("app.add", 1, 2)
    project.write("app.py", "import nothing_of_that_name\n")
    terminal = top()
    terminal.line("app  ", "! app:app cannot be imported")
    terminal.line("› default", " 1 ")


def test_one_look(project: Project) -> None:
    project.serve()
    (job,) = project.put("app.wait", "gate")
    until(lambda: project.children()[0].running)
    project.put("app.add\x1b[2J", queue="odd\x1b[2J")
    said = project.said("top")
    assert said.startswith("master pid ")
    assert job in said
    assert "odd\\x1b[2J" in said
    assert "\x1b" not in said
    facts = project.facts("top", "--once")
    assert facts["master"]["state"] == "serving"
    assert [found["id"] for found in facts["jobs"]] == [job]
    assert {queue["queue"]: queue["running"] for queue in facts["queues"]}["default"] == 1
    assert facts["store"].startswith("sqlite:///")
    # The first sample may come before what was put is summed up.
    until(lambda: sum(minute["put"] for minute in project.facts("top")["minutes"] or ()) == 2)
    facts = project.facts("top")
    assert facts["recent"]["put"] > 0
    assert {queue["queue"]: queue["recent"]["put"] > 0 for queue in facts["queues"]}["default"]
    assert "in/min" in project.said("top")
    assert ids.parse(facts["jobs"][0]["id"])


def test_one_look_when_nothing_is_there(project: Project) -> None:
    project.settings('store = "sqlite:///none/tarry.db"\n')
    assert project.said("top").splitlines()[0] == "master not running"
    facts = project.facts("top")
    assert (facts["master"], facts["queues"]) == (None, [])
    assert "does not exist" in facts["store_trouble"]


def test_one_look_on_a_terminal(project: Project, top: Opened) -> None:
    terminal = top("--once")
    assert terminal.ended() == 0
    assert "master not running" in terminal.lines()[0]
    assert b"\x1b[" not in terminal.written


def test_a_dumb_terminal_gets_one_look(top: Opened) -> None:
    terminal = top(TERM="dumb")
    assert terminal.ended() == 0
    assert b"\x1b[" not in terminal.written


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "1d", "soon"])
def test_intervals_have_bounds(project: Project, interval: str) -> None:
    assert "--interval" in project.refused("top", f"--interval={interval}")


def test_without_the_library_it_says_what_to_install(project: Project, top: Opened) -> None:
    project.write("prompt_toolkit.py", "raise ImportError('not here')\n")
    terminal = top(PYTHONPATH=str(project.directory))
    assert terminal.ended() == 1
    assert "pip install 'tarry[top]'" in "".join(terminal.lines())
