from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.theatre import Theatre


@pytest.fixture
def theatre(tmp_path: Path) -> Iterator[Theatre]:
    """Masters with small roles; all their processes are gone afterwards."""
    theatre = Theatre(tmp_path)
    yield theatre
    theatre.close()
