import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.runtime.logs.formatting import set_job_facts
from tests.runtime.master_harness import MasterHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[MasterHarness]:
    """Starts masters with scripted roles; kills all their processes afterwards."""
    harness = MasterHarness(tmp_path)
    yield harness
    harness.close()


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
    set_job_facts(lambda: None)
