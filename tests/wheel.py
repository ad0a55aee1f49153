"""tarry as a user has it: the wheel, built once a session and installed where nothing else of this tree is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shell in which `python` and `tarry` are those of the wheel. Nothing is downloaded."""
    built, target = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("installed")
    _run("hatchling", "build", "-t", "wheel", "-d", str(built))
    (wheel,) = built.glob("*.whl")
    _run("pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target), str(wheel))
    ours = {name: text for name, text in os.environ.items() if not name.startswith("TARRY_")}
    path = os.pathsep.join([str(target / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = ours | {"PYTHONPATH": str(target), "PATH": path, "COLUMNS": "200"}
    found = subprocess.run(
        ["python", "-c", "import tarry; print(tarry.__file__)"],
        cwd=target, env=environ, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert Path(found.stdout).is_relative_to(target), "it is the wheel that is imported, not this tree"
    return environ


def _run(*words: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
