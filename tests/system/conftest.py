from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.disk import MB, Disk
from tests.system.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Real masters and workers; all their processes are gone afterwards."""
    scene = Scene(tmp_path)
    yield scene
    scene.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """64 MB."""
    disk = Disk(tmp_path / "disk", 64 * MB)
    yield disk
    disk.close()
