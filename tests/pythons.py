"""`make test-pythons`: the tests that need no server, on each Python named that is here.

For each an environment of its own in build/. First only what `pip install tarry` brings, as wheels: where one of them
has no wheel for that Python, a user would need a compiler, and this fails. Needs no environment itself.
"""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = (
    "tests/model",
    "tests/tasks",
    "tests/testing",
    "tests/demo",
    "tests/config/test_config.py",
    "tests/store/test_sqlite.py",
)


def main(versions: list[str]) -> int:
    """1 if the tests fail on one of them, or none is here."""
    found = {version: python for version in versions if (python := find(version))}
    missing = [version for version in versions if version not in found]
    if missing:
        print(f"not here, so not tested: Python {', '.join(missing)}", flush=True)
    failed = [version for version, python in found.items() if not passes(version, python)]
    passed = [version for version in found if version not in failed]
    print(f"passed on Python: {', '.join(passed) or 'none'}; failed on: {', '.join(failed) or 'none'}")
    return 1 if failed or not found else 0


def find(version: str) -> str | None:
    """The program of that Python, on the PATH or of pyenv."""
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    # A shim of pyenv is on the PATH for versions that are not chosen, too, and does not run.
    for program in filter(None, (*map(str, of_pyenv[-1:]), shutil.which(f"python{version}"))):
        if _run(program, "-c", "import venv, ensurepip", quiet=True):
            return program
    return None


def passes(version: str, python: str) -> bool:
    """Installs into a new environment, and runs the tests."""
    print(f"Python {version}: {python}", flush=True)
    home = ROOT / "build" / f"python-{version}"
    here = str(home / "bin" / "python")
    wheels = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    return (
        _run(python, "-m", "venv", "--clear", str(home))
        and _run(here, *wheels, "--only-binary", ":all:", *_base())
        and _run(here, *wheels, "--require-hashes", "--requirement", "requirements.lock")
        and _run(here, *wheels, "--no-deps", "--no-build-isolation", "--editable", ".")
        and _run(here, "-m", "pytest", "-q", "-n", "2", *TESTS)
    )


def _base() -> list[str]:
    """The base requirements, as pyproject.toml has them."""

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [str(requirement) for requirement in project["dependencies"]]


def _run(*words: str, quiet: bool = False) -> bool:
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(words, cwd=ROOT, stdout=output, stderr=output, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
