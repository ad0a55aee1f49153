from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A directory with a small app, and no process of it afterwards."""
    project = Project(tmp_path)
    yield project
    project.close()
