"""One authority for all tests of a run, and a sender that knows the tests' hosts."""

from pathlib import Path

import pytest

from tests.push.certificates import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def certificate(authority: Authority) -> Path:
    return authority.signed(["hooks.example", "127.0.0.1"])
