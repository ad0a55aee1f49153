"""A pytest plugin: the fixture `jobs`, in which an app's jobs can be looked at and run, without a server or a wait.

It comes with tarry and needs no import. For the time of a test all apps keep their jobs in memory, each in a store of
its own, under one clock that stands still; afterwards they have again what they had before.

Every run of pytest imports this file, so the kit itself is imported with the first test that uses it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tarry.testing.answers import Reply as Reply
    from tarry.testing.answers import Sent as Sent
    from tarry.testing.enqueued import Enqueued as Enqueued
    from tarry.testing.kit import Jobs as Jobs

__all__ = ["Enqueued", "Jobs", "Reply", "Sent", "jobs"]


@pytest.fixture
def jobs() -> "Iterator[Jobs]":
    """What the code under test enqueues: looked at, run and let wait, with no server and no sleep."""
    from tarry.testing.kit import opened  # noqa: PLC0415 - see above

    with opened() as kit:
        yield kit


def __getattr__(name: str) -> Any:
    if name == "Jobs":
        from tarry.testing.kit import Jobs  # noqa: PLC0415

        return Jobs
    if name == "Enqueued":
        from tarry.testing.enqueued import Enqueued  # noqa: PLC0415

        return Enqueued
    if name in ("Reply", "Sent"):
        from tarry.testing import answers  # noqa: PLC0415

        return getattr(answers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
