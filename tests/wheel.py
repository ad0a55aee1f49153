"""tarry as a user has it: the wheel, built once a session and installed where nothing else of this tree is."""

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.once import made_once

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's file."""
    built = made_once(tmp_path_factory, "wheel", lambda to: _run("hatchling", "build", "-t", "wheel", "-d", str(to)))
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="session")
def base_only(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and what `pip install tarry` brings, and nothing else. What it
    brings is copied from here, so that nothing is downloaded."""
    return made_once(tmp_path_factory, "base", lambda to: _make_base(to / "venv", wheel)) / "venv/bin"


def _make_base(venv: Path, wheel: Path) -> None:
    _run("venv", "--without-pip", str(venv))
    _run("pip", "--python", str(venv / "bin/python"), "install", "--quiet", "--no-index", "--no-deps", str(wheel))
    (packages,) = venv.glob("lib/python*/site-packages")
    for needed in metadata.requires("tarry") or ():
        if "extra ==" not in needed:
            _copy_distribution(re.split(r"[^\w.-]", needed)[0], packages)


def _copy_distribution(name: str, packages: Path) -> None:
    for file in metadata.files(name) or ():
        # Programs of the distribution stand outside of the packages, and are not needed.
        if ".." not in file.parts:
            (packages / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file.locate(), packages / file)


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shell in which `python` and `tarry` are those of the wheel. Nothing is downloaded."""
    target = made_once(tmp_path_factory, "installed", lambda to: _install(wheel, to / "lib")) / "lib"
    environ = _environ_of(target)
    found = subprocess.run(
        ["python", "-c", "import tarry; print(tarry.__file__)"],
        cwd=target, env=environ, capture_output=True, text=True, timeout=250, check=True,
    )  # fmt: skip
    assert Path(found.stdout).is_relative_to(target), "it is the wheel that is imported, not this tree"
    return environ


def _environ_of(target: Path) -> dict[str, str]:
    ours = {name: text for name, text in os.environ.items() if not name.startswith("TARRY_")}
    path = os.pathsep.join([str(target / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    return ours | {"PYTHONPATH": str(target), "PATH": path, "COLUMNS": "200"}


def _install(wheel: Path, target: Path) -> None:
    _run("pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target), str(wheel))
    _write_bytecode_of_pytest(target)


_LOADS_MUCH = """
import tarry

app = tarry.App(store="memory://")

@app.task
def one() -> int:
    return 1

def test_one(jobs) -> None:
    assert all(getattr(tarry, name) for name in tarry.__all__)
    job = one.enqueue()
    jobs.drain()
    assert job.result() == 1
"""


def _write_bytecode_of_pytest(target: Path) -> None:
    """Pytest rewrites the asserts of a distribution that has a plugin, as tarry. The pages may write no bytecode: each
    pytest of theirs would compile all of tarry anew, which is half of its CPU."""
    test = target.parent / "test_one.py"
    test.write_text(_LOADS_MUCH, encoding="utf-8")
    (test.parent / "pytest.ini").touch()
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:schemathesis")
    environ = {name: text for name, text in _environ_of(target).items() if name != "PYTHONDONTWRITEBYTECODE"}
    _run("pytest", *options, test.name, cwd=test.parent, env=environ)


def _run(*words: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=250, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
