import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.runtime.logs.formatting import tell_of
from tests.runtime.master_harness import Theatre


@pytest.fixture
def theatre(tmp_path: Path) -> Iterator[Theatre]:
    """Masters with small roles; all their processes are gone afterwards."""
    theatre = Theatre(tmp_path)
    yield theatre
    theatre.close()


@pytest.fixture
def own_logging() -> Iterator[None]:
    """The root logger without pytest's handlers, and as it was afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    tell_of(lambda: None)
