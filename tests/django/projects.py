"""Projects in a folder, and their manage.py, run as a user runs it."""

import subprocess
import sys
from pathlib import Path


def manage(project: Path, *words: str, status: int | None = 0) -> str:
    """What `manage.py` says. status: that it must exit with; None: any."""
    return run(project, "manage.py", *words, status=status)


def tarry(project: Path, *words: str, status: int | None = 0) -> str:
    """What tarry's own command says."""
    return run(project, "-m", "tarry", *words, status=status)


def run(project: Path, *words: str, status: int | None = 0) -> str:
    """What python says in the folder of a project."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *words], cwd=project, timeout=60, capture_output=True, text=True, check=False
    )
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr
