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
def checked_history(scene: Scene) -> Iterator[None]:
    """At the end of the test its history keeps the promises. For tests whose tasks tell the ledger of their ends."""
    yield
    scene.check_history()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """64 MB."""
    disk = Disk(tmp_path / "disk", 64 * MB)
    yield disk
    disk.close()
