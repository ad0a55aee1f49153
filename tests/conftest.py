"""For all tests: bytecode for the many processes that they start, and servers for whoever asks."""

import compileall
from pathlib import Path

import pytest
from hypothesis import settings

# Asserts in the conformance suite, which is library code, tell what they compared.
pytest.register_assert_rewrite("tarry.store.conformance")

pytest_plugins = ["tests.servers.fixtures", "tests.wheel"]

# How long an example takes says how busy the machine is.
settings.register_profile("tarry", deadline=None)
settings.load_profile("tarry")


def pytest_configure(config: pytest.Config) -> None:
    """Where nobody may write bytecode, each of a thousand processes would compile all of tarry again."""
    if not hasattr(config, "workerinput"):  # of several processes of tests, the one that starts the others
        compileall.compile_dir(Path(__file__).parents[1] / "tarry", quiet=2)
