"""A real master whose keeper shows figures: on a port and in a file, over reloads and deaths."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarry.metrics.store_figures import READ_WITHIN
from tests.cli.project import Project, until
from tests.metrics.reading import fetch, scrape
from tests.servers.fixtures import started
from tests.servers.redis import RedisServer
from tests.servers.server import free_port


def serve(project: Project, rest: str = "", port: int | None = None) -> int:
    """A master whose keeper listens there."""
    port = port or free_port()
    project.settings(f'[metrics]\nlisten = "127.0.0.1:{port}"\n{rest}')
    project.serve()
    return port


def has(port: int, name: str, *labels: str) -> float | None:
    return scrape(port).get(name, {}).get(labels)


def test_the_keeper_shows_jobs_workers_and_itself(project: Project) -> None:
    port = serve(project, "[pools.default]\nworkers = 2\n")
    project.enqueue("app.add", "1", "2")
    until(lambda: has(port, "tarry_jobs_total", "done", "default", "app.add") == 1)
    found = scrape(port)
    assert found["tarry_jobs_enqueued_total"]["default", "app.add"] == 1
    assert found["tarry_job_duration_seconds_count"]["default", "app.add"] == 1
    assert sum(found["tarry_workers"].values()) == 2
    assert set(found["tarry_process_cpu_seconds_total"]) == {
        ("keeper",),
        ("worker default.1",),
        ("worker default.2",),
    }
    assert list(found["tarry_store_up"].values()) == [1]
    assert (found["tarry_keeper_up"][()], found["tarry_hosts"]["alive",]) == (1, 1)
    assert found["tarry_keeper_chores_total"]["done",] > 0
    assert f"metrics at 127.0.0.1:{port}" in project.said("status")


def test_a_server_shows_the_same(project: Project) -> None:
    http = free_port()
    port = serve(project, f'[server]\nhttp = "127.0.0.1:{http}"\n')
    project.enqueue("app.add", "1")
    # Totals and the look are cached apart, and a server makes its first look when it starts.
    until(lambda: all(has(at, "tarry_jobs_total", "done", "default", "app.add") == 1 for at in (port, http)))
    until(lambda: all(has(at, "tarry_queue_depth", "default", "done") == 1 for at in (port, http)))
    keeper, server = scrape(port), scrape(http)
    only_one = {"tarry_keeper_chores_total", "tarry_http_requests_total"}
    assert {name for name in keeper if name.startswith("tarry_")} - only_one <= set(server)
    assert set(keeper["tarry_queue_depth"]) == set(server["tarry_queue_depth"])
    assert set(keeper["tarry_workers"]) == set(server["tarry_workers"])


def test_another_address_takes_over_without_a_gap(project: Project) -> None:
    before, after = serve(project), free_port()
    refused, over = list[str](), threading.Event()

    def ask() -> None:
        # Of both addresses one serves at any moment.
        while not over.is_set():
            if not any(map(is_served, (before, after))):
                refused.append("neither")

    asker = threading.Thread(target=ask)
    asker.start()
    project.settings(f'[metrics]\nlisten = "127.0.0.1:{after}"\n')
    project.said("reload")
    until(lambda: not is_served(before) and is_served(after))
    over.set()
    asker.join()
    assert refused == []


def is_served(port: int) -> bool:
    try:
        return "tarry_keeper_up" in fetch(port)
    except (urllib.error.URLError, ConnectionError):
        return False


def test_no_scrape_fails_over_reloads(project: Project) -> None:
    port = serve(project)
    failed, over = list[str](), threading.Event()

    def ask() -> None:
        while not over.is_set():
            if not is_served(port):
                failed.append("refused")

    asker = threading.Thread(target=ask)
    asker.start()
    for _ in range(2):
        (keeper,) = project.pids("keeper")
        project.said("reload")
        until(lambda: project.pids("keeper") not in ([], [keeper]))  # noqa: B023 - called before it changes
    over.set()
    asker.join()
    assert failed == []


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    yield from started(RedisServer(tmp_path / "redis"))


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSTOP])
def test_a_store_that_is_away_is_told_and_its_figures_are_not_repeated(
    project: Project, redis: RedisServer, way: signal.Signals
) -> None:
    """Also one that takes requests and never answers."""
    port = free_port()
    project.settings(f'store = "{redis.url}"\n[metrics]\nlisten = "127.0.0.1:{port}"\n')
    project.serve()
    project.enqueue("app.add", "1")
    until(lambda: has(port, "tarry_queue_depth", "default", "done") == 1)
    pid = int(re.findall(r"process_id:(\d+)", redis.call("INFO", "server"))[0])
    os.kill(pid, way)
    until(lambda: is_down(port))
    began = time.monotonic()
    found = scrape(port)
    assert time.monotonic() - began < READ_WITHIN + 2
    assert set(found["tarry_store_up"].values()) == {0}
    assert not {"tarry_queue_depth", "tarry_jobs_total", "tarry_hosts"} & set(found)
    assert sum(found["tarry_workers"].values()) == 1
    if way == signal.SIGSTOP:
        os.kill(pid, signal.SIGCONT)
        until(lambda: has(port, "tarry_queue_depth", "default", "done") == 1)


def is_down(port: int) -> bool:
    try:
        return set(scrape(port)["tarry_store_up"].values()) == {0}
    except (urllib.error.URLError, ConnectionError):
        return False


def test_the_file_is_written_whole_and_goes_with_the_master(project: Project) -> None:
    project.settings('[metrics]\ntextfile = "tarry.prom"\nevery = 0.1\n')
    path = project.directory / "tarry.prom"
    project.serve()
    until(path.exists)
    project.enqueue("app.add", "1")
    until(lambda: 'tarry_jobs_total{outcome="done",queue="default",task="app.add"} 1.0' in path.read_text())
    text = path.read_text()
    # node_exporter has figures of these names about itself, and takes no OpenMetrics.
    assert "\nprocess_" not in text
    assert "# EOF" not in text
    assert path.stat().st_mode & 0o777 == 0o644
    (keeper,) = project.pids("keeper")
    project.said("reload")
    until(lambda: project.pids("keeper") not in ([], [keeper]))
    assert path.exists()
    project.said("stop")
    assert not path.exists()
    assert list(project.directory.glob("*.prom.*")) == []


def test_a_directory_that_is_not_there_is_told_at_the_start(project: Project) -> None:
    project.settings('[metrics]\ntextfile = "none/tarry.prom"\n')
    assert "tarry.toml:3: " in project.refused("start", "-d")
    facts = {fact["name"]: fact for fact in checked(project)}
    assert facts["metrics"]["advice"].endswith("none is no directory: make it")


def checked(project: Project) -> Any:
    ran = project.tarry("--json", "check")
    return msgspec.json.decode(ran.out)["facts"]


def test_check_says_where_the_figures_are(project: Project) -> None:
    (project.directory / "out").mkdir()
    project.settings('[metrics]\nlisten = ":7801"\ntextfile = "out/tarry.prom"\n')
    values = [fact["value"] for fact in checked(project) if fact["name"] == "metrics"]
    assert values == [":7801", f"{project.directory}/out/tarry.prom, every 15s"]


def test_an_address_that_is_taken_is_told(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        project.settings(f'[metrics]\nlisten = "127.0.0.1:{port}"\n')
        assert "metrics cannot listen at" in (complaint := project.refused("start", "-d"))
        assert "set metrics.listen to another address" in complaint


NEEDED = """
import sys
sys.modules["prometheus_client"] = None  # makes an import of it fail
from msgspec.structs import replace
from tarry.config.config import Config
from tarry.errors import ConfigError
from tarry.config.config import MetricsConfig
from tarry.model.values.listen_address import listen_address
from tarry.process.metrics import check_metrics
check_metrics(Config())
try:
    check_metrics(replace(Config(), metrics=MetricsConfig(listen=(listen_address(":7801"),))))
except ConfigError as error:
    print(error)
"""


def test_the_missing_extra_is_named() -> None:
    ran = subprocess.run([sys.executable, "-c", NEEDED], capture_output=True, text=True, timeout=250, check=True)
    assert ran.stdout.startswith("[metrics] needs its extra: pip install 'tarry[metrics]'")


ALONE = """
import sys
for name in ("starlette", "uvicorn", "httptools", "jinja2", "uvloop"):
    sys.modules[name] = None
import tarry.metrics.listener, tarry.metrics.scrape, tarry.metrics.textfile, tarry.metrics.store_figures
"""


def test_no_server_extra_is_needed() -> None:
    subprocess.run([sys.executable, "-c", ALONE], timeout=250, check=True)
