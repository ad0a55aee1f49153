"""An environment for each project, with the pinned packages of `requirements/`."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def python_of(project: str, directory: Path) -> Path:
    """The Python of a project's environment below `directory`, which is made if it is not there. tarry runs from this
    checkout, in the environment that runs this. CalledProcessError."""
    if project == "tarry":
        return Path(sys.executable)
    python = directory / project / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(directory / project)], check=True)
        packages = HERE / "requirements" / f"{project}.txt"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", str(packages)], check=True, stdout=sys.stderr)
    return python


def version_of(project: str, python: Path) -> str:
    """As the package says; of tarry, that it is this checkout."""
    if project == "tarry":
        return "(this checkout)"
    code = f"from importlib.metadata import version; print(version({project!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
