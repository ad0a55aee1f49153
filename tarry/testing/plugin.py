"""The pytest plugin: the fixture `jobs`. Every run of pytest imports it, so it imports the kit only for the first test
that uses that."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tarry.testing.kit import Jobs


@pytest.fixture
def jobs() -> "Iterator[Jobs]":
    """The jobs that the code under test enqueues: a `Jobs`, to check and run them."""
    from tarry.testing.kit import open_kit  # noqa: PLC0415 - see above

    with open_kit() as kit:
        yield kit
