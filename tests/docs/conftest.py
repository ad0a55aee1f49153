from collections.abc import Iterator

import pytest

from tests.docs.forked_programs import ForkedPrograms
from tests.docs.page_run import VARIABLES


@pytest.fixture(scope="session")
def programs(installed: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedPrograms]:
    programs = ForkedPrograms(tmp_path_factory.mktemp("programs"), installed, VARIABLES)
    yield programs
    programs.close()
