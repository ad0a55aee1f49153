"""What is loaded when: a command that only looks at the master is not to wait for the app's half of tarry."""

import argparse
import importlib
import subprocess
import sys
from importlib.metadata import version

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
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
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


def test_a_name_is_loaded_when_it_is_asked_for() -> None:
    assert not {"tarry.app", "tarry.tasks", "tarry.client"} & loaded("import tarry")
    assert "tarry.app" in loaded("from tarry import App")


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


def test_a_command_about_jobs_does_not_load_the_master() -> None:
    assert not loaded("import tarry.cli.operate.jobs") & {"tarry.runtime.master", "tarry.runtime.process_group"}


def test_whatever_is_no_command_is_told_with_all_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["statistics"])
    said = capsys.readouterr().err
    assert all(f"'{name}'" in said for names in COMMAND_MODULES.values() for name in names)
