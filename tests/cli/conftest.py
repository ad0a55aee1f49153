from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A directory with a small app, and no process of it afterwards."""
    place = Place(tmp_path)
    yield place
    place.close()
