from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.disk import MB, Disk
from tests.cli.project import Place


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """48 MB."""
    disk = Disk(tmp_path / "disk", 48 * MB)
    yield disk
    disk.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A directory with a small app, and no process of it afterwards."""
    place = Place(tmp_path)
    yield place
    place.close()
