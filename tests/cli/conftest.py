from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.disk import MB, Disk
from tests.cli.project import Project


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """48 MB."""
    disk = Disk(tmp_path / "disk", 48 * MB)
    yield disk
    disk.close()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A directory with a small app, and no process of it afterwards."""
    project = Project(tmp_path)
    yield project
    project.close()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Project]:
    """A place with nothing in it."""
    project = Project(tmp_path)
    (tmp_path / "tarry.toml").unlink()
    (tmp_path / "app.py").unlink()
    yield project
    project.close()
