"""What checks are made of: commands, and tools of the package index in an environment of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"


class CheckFailed(Exception):
    """What is wrong."""


class CannotRun(Exception):
    """What is missing on this machine."""


def run(*words: str, cwd: Path = ROOT, seconds: float = 1800.0, env: dict[str, str] | None = None) -> str:
    """What the command prints. CheckFailed with its last lines; CannotRun if there is no such program."""
    try:
        ran = subprocess.run(
            words, cwd=cwd, env=os.environ | (env or {}), capture_output=True, text=True, timeout=seconds, check=False
        )
    except FileNotFoundError:
        raise CannotRun(f"{words[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise CheckFailed(f"{' '.join(words)}: no end after {seconds:.0f} s") from None
    if ran.returncode:
        # Warnings of pip on stderr must not hide which test failed.
        last = "\n".join(line for text in (ran.stdout, ran.stderr) for line in text.strip().splitlines()[-12:])
        raise CheckFailed(f"{' '.join(words)}: exit status {ran.returncode}\n{last}")
    return ran.stdout


def tool(package: str) -> Path:
    """The programs of an environment with this package; CannotRun if the index does not give it."""
    home = BUILD / package.partition("=")[0]
    if not (home / "done").exists():
        try:
            run(sys.executable, "-m", "venv", "--clear", str(home))
            run(str(home / "bin/pip"), "install", "--quiet", "--only-binary", ":all:", package)
        except CheckFailed as failed:
            raise CannotRun(f"{package} cannot be installed: {str(failed).splitlines()[-1]}") from None
        (home / "done").touch()
    return home / "bin"
