"""Clients of npm that tests run: 11 MB in `build/npm`, which `tests.servers.install` fills where there is npm."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.servers.server import Missing

PACKAGES = {"beanstalkd": "2.2.5", "jackd": "2.2.2", "node-beanstalk": "1.6.7"}
DIRECTORY = Path(__file__).parents[2] / "build/npm"
_WITHIN = 60.0


def is_installed() -> bool:
    """Whether all of them are there."""
    return all((DIRECTORY / "node_modules" / name / "package.json").exists() for name in PACKAGES)


def install() -> None:
    """Installs those that are missing, if there is npm and it reaches its registry within a minute."""
    if is_installed() or not shutil.which("npm"):
        return
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
    # No script of theirs is run.
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(DIRECTORY)]
    try:
        subprocess.run(["npm", "install", *options, *wanted], stdout=sys.stderr, timeout=_WITHIN, check=False)
    except subprocess.TimeoutExpired:
        print(f"npm did not end within {_WITHIN:g} s", file=sys.stderr)


def environment() -> dict[str, str]:
    """For programs that need them; Missing."""
    if not is_installed():
        raise Missing(f"{', '.join(PACKAGES)} of npm are not installed: make servers")
    return {**os.environ, "NODE_PATH": str(DIRECTORY / "node_modules")}
