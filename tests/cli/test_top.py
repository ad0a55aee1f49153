"""`tarry top` on a real terminal, with a real master and a real store."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tarry.keeper.hosts import Host, HostEntry, PoolFigures
from tarry.store import ids
from tests.cli.project import Place, until
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
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path, APP)
    yield place
    place.close()


@pytest.fixture
def top(place: Place) -> Iterator[Opened]:
    """Starts `tarry top` in a terminal of its own."""
    terminals: list[Terminal] = []

    def opened(*words: str, at: Place = place, **rest: object) -> Terminal:
        terminals.append(Terminal(at, *words, **rest))  # type: ignore[arg-type]
        return terminals[-1]

    yield opened
    for terminal in terminals:
        terminal.close()


def test_a_worker_its_job_and_the_queues(place: Place, top: Opened) -> None:
    master = place.serve()
    (job,) = place.put("app.wait", "gate")
    place.put("app.send", "gate", queue="mail")
    place.put("app.add", 1, 2, delay="1h", times=3)
    (worker,) = place.pids()
    terminal = top(width=140, height=30)
    terminal.line("tarry top", f"master {master.pid} serving")
    terminal.line("pools", "default 1 of 1 busy")
    terminal.line("default.1", str(worker), "ready", " app.wait")
    terminal.line("app.wait", job, "default", f":{worker}")
    terminal.line("app.send", "mail")
    until(lambda: terminal.line("› default", " 3 ").split()[1:5] == ["default", "·", "3", "1"])
    terminal.line("store", str(place.database))
    place.write("gate", "")
    terminal.line("0 running")
    terminal.without("app.wait")
    until(lambda: terminal.line("default.1").split()[-1] == "·")
    terminal.press("q")
    assert terminal.ended() == 0


def test_depth_and_rates_follow_what_happens(place: Place, top: Opened) -> None:
    place.put("app.add", 1, 2, queue="slow", times=5)
    terminal = top("--interval", "0.2")
    terminal.line("slow", " 5 ")
    terminal.line("tarry top", "no master runs here")
    place.put("app.add", 1, 2, queue="slow", times=1200)
    assert terminal.line("slow", "1,205").split()[-2] not in ("-", "0")
    place.said("queues", "purge", "slow", "--yes")
    terminal.line("0 ready")


def test_a_queue_is_paused_and_resumed_from_the_keyboard(place: Place, top: Opened) -> None:
    place.put("app.add", 1, 2)
    place.put("app.send", "x", queue="mail")
    terminal = top()
    terminal.line("› default")
    terminal.line("  mail")
    terminal.press(DOWN)
    terminal.line("› mail")
    terminal.press("p")
    terminal.line("queue mail paused")
    terminal.line("› mail", "paused")
    assert _paused(place) == {"default": False, "mail": True}
    terminal.press("r")
    terminal.line("queue mail resumed")
    assert not _paused(place)["mail"]
    terminal.press(UP)
    terminal.line("› default")


def _paused(place: Place) -> dict[str, bool]:
    with place.store() as store:
        return store.queues()


def test_a_job_is_cancelled_only_when_it_is_confirmed(place: Place, top: Opened) -> None:
    place.serve()
    (job,) = place.put("app.wait", "never")
    terminal = top()
    terminal.line("default.1", "app.wait")
    terminal.press("\t", "c")
    terminal.line(f"cancel, y or n?  app.wait {job}")
    terminal.press("x")
    terminal.line("not cancelled")
    assert place.job(job).state == "running"
    terminal.press("c")
    terminal.line(f"cancel, y or n?  app.wait {job}")
    terminal.press("y")
    terminal.line(f"app.wait {job} cancelled")
    assert place.job(job).state == "cancelled"
    terminal.press("x")
    terminal.without("app.wait")
    until(lambda: terminal.line("default.1").split()[-1] == "·")


def test_a_job_that_no_scoreboard_shows_is_cancelled_in_the_jobs(place: Place, top: Opened) -> None:
    place.serve()
    (job,) = place.put("app.send", "never", queue="mail")
    terminal = top()
    terminal.line("app.send", "mail")
    terminal.press("3", "c")
    terminal.line(f"cancel, y or n?  app.send {job}")
    terminal.press("y")
    terminal.line("nothing here")
    assert place.job(job).state == "cancelled"


def test_filter_sort_and_help(place: Place, top: Opened) -> None:
    for queue, count in (("alpha", 1), ("beta", 3), ("gamma", 2)):
        place.put("app.add", 1, 2, queue=queue, times=count)
    place.put("other.task", queue="alpha")
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
def test_it_leaves_the_terminal_as_it_was(place: Place, top: Opened, key: str | int, status: int) -> None:
    place.put("app.add", 1, 2)
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


def test_it_ends_with_its_terminal(place: Place, top: Opened) -> None:
    terminal = top()
    terminal.line("tarry top")
    terminal.vanish()
    terminal.process.wait(30)


def test_another_size(place: Place, top: Opened) -> None:
    place.put("app.add", 1, 2)
    terminal = top()
    terminal.line("› default")
    terminal.resize(140, 40)
    terminal.line("queue", "cancelled")
    assert until(lambda: terminal.lines()[39].startswith(" q quit"))
    terminal.resize(60, 12)
    terminal.without("cancelled")
    assert until(lambda: terminal.lines()[11].startswith(" q quit"))
    terminal.resize(20, 5)
    terminal.line("40 x 8 at least")
    terminal.resize(80, 24)
    terminal.line("› default")


def test_names_with_escapes_are_only_shown(place: Place, top: Opened) -> None:
    bad = "\x1b[2J\x1b]0;owned\x07"
    place.put("task" + bad, queue="queue" + bad, key="k" + bad)
    place.put("task\u202eevil", queue="幅広い名前のキュー" * 5)
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


def test_without_a_master(place: Place, top: Opened) -> None:
    place.put("app.add", 1, 2)
    terminal = top()
    terminal.line("no master runs here")
    terminal.line("› default", " 1 ")
    master = place.serve()
    terminal.line(f"master {master.pid} serving")
    place.put("app.wait", "never")
    terminal.line("default.1", "app.wait")
    os.kill(master.pid, signal.SIGKILL)
    terminal.line(f"master {master.pid} is gone")


def test_other_hosts(place: Place, top: Opened) -> None:
    place.serve()
    terminal = top(width=120)
    terminal.line("default.1", "ready")
    assert not any(line.startswith(("  host", "▸ host")) for line in terminal.lines())
    pools = [PoolFigures("web", workers=4, busy=3, processed=70)]
    other = Host("db2|b.1:77:1:1", "db2", 77, "/run/tarry.pid", "1", "serving", 1, 0, pools)
    with place.store() as store:
        HostEntry(store, lambda: other).register_host()
    until(lambda: terminal.line("  db2", "serving").split()[1:5] == ["serving", "77", "4", "3"])
    terminal.press("4", "/", "d", "b", "2", "\r")
    terminal.line("› db2")


def test_a_reload_that_comes_to_nothing(place: Place, top: Opened) -> None:
    master = place.serve()
    terminal = top(width=140)
    terminal.line(f"master {master.pid} serving")
    place.write("app.py", "raise RuntimeError('half an app')\n")
    master.send_signal(signal.SIGHUP)
    terminal.line("reload", "! came to nothing", "half an app")


def test_a_store_of_which_a_part_is_away(place: Place, top: Opened) -> None:
    place.settings('store = ["sqlite:///tarry.db", "sqlite:///gone/tarry.db"]\n')
    place.put("app.add", 1, 2)
    terminal = top(width=160)
    terminal.line("store", "! in part only", "gone/tarry.db")
    terminal.line("› default", " 1 ")
    terminal.press("p")
    terminal.line("queue default paused only in part")
    assert _paused(place) == {"default": True}


def test_a_store_that_vanishes_and_comes_back(place: Place, top: Opened) -> None:
    data = place.directory / "data"
    data.mkdir()
    place.database = data / "tarry.db"
    place.settings('store = "sqlite:///data/tarry.db"\n')
    place.put("app.add", 1, 2)
    terminal = top("--interval", "0.2")
    terminal.line("› default", " 1 ")
    data.rename(place.directory / "moved")
    assert "was moved or deleted" in terminal.line("store", "! away for").replace("…", "was moved or deleted")
    terminal.line("› default", " 1 ")
    terminal.press("p")
    terminal.line("default not paused")
    (place.directory / "moved").rename(data)
    terminal.without("! away")
    assert _paused(place) == {"default": False}
    place.put("app.add", 1, 2, times=4)
    terminal.line("› default", " 5 ")


def test_a_store_that_is_not_there_yet(place: Place, top: Opened) -> None:
    place.settings('store = "sqlite:///data/tarry.db"\n')
    terminal = top()
    terminal.line("store", "! away for")
    (place.directory / "data").mkdir()
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
    place: Place, top: Opened, own_redis: RedisServer
) -> None:
    place.settings(f'store = "{own_redis.url}?timeout=1s"\n')
    place.enqueue("app.add", "[1, 2]")
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
def test_on_a_server(place: Place, top: Opened, request: pytest.FixtureRequest, server: str) -> None:
    place.settings(f'store = "{request.getfixturevalue(server).url}"\n')
    queue = f"q{uuid4()}"[:12]
    jobs = [place.enqueue("app.add", "1", "2", "--queue", queue) for _ in range(2)]
    terminal = top(width=120)
    terminal.press("/", *queue, "\r")
    terminal.line(f"› {queue}", " 2 ")
    terminal.press("p")
    terminal.line(f"› {queue}", "paused")
    facts = place.facts("top")
    assert facts["store_trouble"] == ""
    assert [(found["ready"], found["paused"]) for found in facts["queues"] if found["queue"] == queue] == [(2, True)]
    place.said("jobs", "delete", *jobs, "--yes")
    place.said("queues", "resume", queue)


def test_an_app_that_cannot_be_imported(place: Place, top: Opened) -> None:
    place.put("app.add", 1, 2)
    place.write("app.py", "import nothing_of_that_name\n")
    terminal = top()
    terminal.line("app  ", "! app:app cannot be imported")
    terminal.line("› default", " 1 ")


def test_one_look(place: Place) -> None:
    place.serve()
    (job,) = place.put("app.wait", "gate")
    until(lambda: place.children()[0].running)
    place.put("app.add\x1b[2J", queue="odd\x1b[2J")
    said = place.said("top")
    assert said.startswith("master pid ")
    assert job in said
    assert "odd\\x1b[2J" in said
    assert "\x1b" not in said
    facts = place.facts("top", "--once")
    assert facts["master"]["state"] == "serving"
    assert [found["id"] for found in facts["jobs"]] == [job]
    assert {queue["queue"]: queue["running"] for queue in facts["queues"]}["default"] == 1
    assert facts["store"].startswith("sqlite:///")
    assert ids.parsed(facts["jobs"][0]["id"])


def test_one_look_when_nothing_is_there(place: Place) -> None:
    place.settings('store = "sqlite:///none/tarry.db"\n')
    assert place.said("top").splitlines()[0] == "master not running"
    facts = place.facts("top")
    assert (facts["master"], facts["queues"]) == (None, [])
    assert "does not exist" in facts["store_trouble"]


def test_one_look_on_a_terminal(place: Place, top: Opened) -> None:
    terminal = top("--once")
    assert terminal.ended() == 0
    assert "master not running" in terminal.lines()[0]
    assert b"\x1b[" not in terminal.written


def test_a_dumb_terminal_gets_one_look(top: Opened) -> None:
    terminal = top(TERM="dumb")
    assert terminal.ended() == 0
    assert b"\x1b[" not in terminal.written


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "1d", "soon"])
def test_intervals_have_bounds(place: Place, interval: str) -> None:
    assert "--interval" in place.refused("top", f"--interval={interval}")


def test_without_the_library_it_says_what_to_install(place: Place, top: Opened) -> None:
    place.write("prompt_toolkit.py", "raise ImportError('not here')\n")
    terminal = top(PYTHONPATH=str(place.directory))
    assert terminal.ended() == 1
    assert "pip install 'tarry[top]'" in "".join(terminal.lines())
