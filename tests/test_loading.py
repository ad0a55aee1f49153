"""What is loaded when: a command that only looks at the master is not to wait for the app's half of tarry."""

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

import tarry
from tarry.cli.main import COMMAND_MODULES, parser


def loaded(code: str) -> set[str]:
    told = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(told.stdout.split())


FORKS_MEANWHILE = """
import os, threading, {first}
forking, imported, is_over = threading.Event(), threading.Event(), threading.Event()

def fork():
    if os.fork() == 0:
        os._exit(0)
    is_over.set()

os.register_at_fork(before=lambda: (forking.set(), imported.wait()))
forks = threading.Thread(target=fork)
forks.start()
forking.wait()
from {second}
with lock:
    imported.set()
    is_over.wait(0.5)  # whoever has the lock rightly keeps the fork waiting
forks.join()
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("tarry.worker.worker", "concurrent.futures.thread import _global_shutdown_lock as lock"),
        ("threading", "tarry.store.sqlite.link.forked import _forking; lock = _forking.lock"),
    ],
)
def test_what_is_imported_while_another_job_forks_releases_no_lock_of_others(first: str, second: str) -> None:
    code = FORKS_MEANWHILE.format(first=first, second=second)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=False)
    told = [line for line in ran.stderr.splitlines() if "logging" not in line]
    assert (ran.returncode, ran.stdout, [line for line in told if "forked" in line or "unlocked" in line]) == (
        0,
        "",
        [],
    )


def test_every_name_of_the_package_is_there_and_no_other() -> None:
    assert all(getattr(tarry, name) is not None for name in tarry.__all__)
    with pytest.raises(AttributeError, match="module 'tarry' has no attribute 'Nonsense'"):
        tarry.Nonsense  # type: ignore[attr-defined] # noqa: B018


def test_the_version_is_that_of_the_installed_package() -> None:
    assert tarry.__version__ == version("tarry")
    assert "email" not in loaded("from tarry import __version__")


def test_the_version_is_told_without_any_command() -> None:
    code = "try: tarry.cli.main.main(['--version'])\nexcept SystemExit: pass"
    assert not set(COMMAND_MODULES) & loaded(f"import tarry.cli.main\n{code}")


def test_a_name_is_loaded_when_it_is_asked_for() -> None:
    assert not {"tarry.app", "tarry.tasks", "tarry.client"} & loaded("import tarry")
    assert "tarry.app" in loaded("from tarry import App")


OPENS = """
import contextlib, sys, tarry.app
from tarry.errors import TarryError
from tarry.store.opening import import_stores, open_store
import_stores({urls})
early = set(sys.modules)
with contextlib.suppress(TarryError):
    open_store({urls})
print(*(name for name in sys.modules.keys() - early if name.startswith("tarry.")))
"""


@pytest.mark.parametrize(
    "url", ["sqlite:///own.db", "redis://127.0.0.1:1/0", "postgresql://127.0.0.1:1/own", "mysql://root@127.0.0.1:1/own"]
)
def test_what_a_store_needs_is_imported_before_it_is_opened(url: str, tmp_path: Path) -> None:
    for urls in ([url], [url, f"{url}2"]):
        code = OPENS.format(urls=urls)
        told = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert told.stdout.split() == []


@pytest.mark.parametrize("home", COMMAND_MODULES)
def test_a_command_is_where_it_is_looked_for(home: str) -> None:
    commands = argparse.ArgumentParser().add_subparsers()
    importlib.import_module(home).add(commands)
    assert tuple(commands.choices) == COMMAND_MODULES[home]


@pytest.mark.parametrize("words", [["status"], ["-c", "start", "--json", "status"], ["--config=enqueue", "status"]])
def test_status_loads_neither_app_nor_store(words: list[str]) -> None:
    modules = loaded(f"from tarry.cli.main import main\ntry: main({words!r})\nexcept SystemExit: pass")
    assert "tarry.runtime.control" in modules
    heavy = {"tarry.app", "tarry.worker.worker", "tarry.store.rules.base", "apsw", "asyncio", "tqdm", "prompt_toolkit"}
    assert not heavy & modules


@pytest.mark.parametrize("command", ["tokens", "passwords"])
def test_what_is_about_a_file_of_this_host_loads_neither_app_nor_store(command: str, tmp_path: Path) -> None:
    (tmp_path / f"{command}.toml").touch(0o600)
    (tmp_path / "tarry.toml").write_text(f'[server]\n{command} = "{command}.toml"\n')
    run = f"from tarry.cli.main import main\nos.chdir({str(tmp_path)!r})\nassert main([{command!r}, 'list']) == 0"
    modules = loaded(f"import os\n{run}")
    assert f"tarry.server.identity.{command}" in modules
    assert not HEAVY & modules


HEAVY = {
    "apsw", "asyncio", "prompt_toolkit", "sqlite3", "ssl", "starlette", "tqdm", "uvicorn",
    "tarry.app", "tarry.runtime.master", "tarry.server.service", "tarry.store.rules.base", "tarry.worker.worker",
}  # fmt: skip
"""What takes long to load, or brings much that does."""

MOST_LOADED = {
    "tarry.cli.start": (292, "tarry.app tarry.runtime.master tarry.store.rules.base tarry.worker.worker"),
    "tarry.cli.processes": (57, ""),
    "tarry.cli.operate.hosts": (185, "tarry.store.rules.base"),
    "tarry.cli.top.top_command": (37, ""),
    "tarry.cli.worker": (205, "tarry.store.rules.base tarry.worker.worker"),
    "tarry.cli.enqueue": (132, "tarry.store.rules.base"),
    "tarry.cli.operate.jobs": (192, "tarry.store.rules.base"),
    "tarry.cli.operate.flows": (146, "tarry.store.rules.base"),
    "tarry.cli.operate.queues": (202, "tarry.app tarry.store.rules.base"),
    "tarry.cli.top.stats": (100, ""),
    "tarry.cli.operate.tasks": (215, "tarry.app tarry.store.rules.base"),
    "tarry.cli.operate.endpoints": (187, "tarry.store.rules.base"),
    "tarry.cli.operate.limits": (115, "tarry.store.rules.base"),
    "tarry.cli.operate.schedules": (150, "tarry.store.rules.base"),
    "tarry.cli.operate.errors": (161, "tarry.store.rules.base"),
    "tarry.cli.operate.deploys": (161, "tarry.store.rules.base"),
    "tarry.cli.operate.operations": (155, "tarry.store.rules.base"),
    "tarry.cli.shards": (111, "tarry.store.rules.base"),
    "tarry.cli.check": (275, "tarry.app tarry.store.rules.base"),
    "tarry.cli.store": (162, "apsw tarry.store.rules.base"),
    "tarry.cli.project.init": (35, ""),
    "tarry.cli.project.completion": (10, ""),
    "tarry.cli.project.doctor": (276, "tarry.app tarry.store.rules.base"),
    "tarry.cli.project.demo": (185, "tarry.app tarry.store.rules.base tqdm"),
    "tarry.cli.migrate": (80, "tarry.store.rules.base"),
    "tarry.cli.importing.import_celery": (145, "tarry.store.rules.base"),
    "tarry.cli.replay": (42, ""),
    "tarry.cli.identity.tokens": (81, ""),
    "tarry.cli.identity.passwords": (85, ""),
    "tarry.cli.operate.audit": (116, "tarry.store.rules.base"),
    "tarry.cli.assistant": (20, ""),
}
"""Of the module of each command: how many modules of tarry it loads at most, and which of those that take long. What it
needs besides, it loads when it runs."""

_EACH = """
import importlib, json, os
for home in {homes}:
    read, write = os.pipe()
    if not os.fork():
        importlib.import_module(home)
        with open(write, "w") as told:
            json.dump([home, *sys.modules], told)
        os._exit(0)
    os.close(write)
    with open(read) as told:
        print(told.read(), file=sys.stderr)
    os.wait()
"""


@pytest.fixture(scope="module")
def of_each() -> Mapping[str, set[str]]:
    """What each command's module loads."""
    code = "import sys, msgspec, tarry.cli.main\n" + _EACH.format(homes=list(COMMAND_MODULES))
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {home: set(modules) for home, *modules in map(json.loads, told.stderr.splitlines())}


@pytest.mark.parametrize("home", COMMAND_MODULES)
def test_a_command_loads_no_more_than_it_must(of_each: Mapping[str, set[str]], home: str) -> None:
    most, heavy = MOST_LOADED[home]
    modules = of_each[home]
    assert sum(name.startswith("tarry.") for name in modules) <= most
    assert HEAVY & modules == set(heavy.split())


def test_whatever_is_no_command_is_told_with_all_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["statistics"])
    said = capsys.readouterr().err
    assert all(f"'{name}'" in said for names in COMMAND_MODULES.values() for name in names)
