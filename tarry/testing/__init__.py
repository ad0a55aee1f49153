"""A pytest plugin: the fixture `jobs`, to look at an app's jobs and run them, without a server and without waiting.

It needs no import. During a test each app keeps its jobs in a store of its own in memory, under one clock that stands
still. After the test the apps have their own stores again.
"""

# Every run of pytest imports this file, and so does whoever writes or checks a history, where no pytest may be.

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tarry.testing.enqueued import Enqueued as Enqueued
    from tarry.testing.fake_endpoints import Reply as Reply
    from tarry.testing.fake_endpoints import Sent as Sent
    from tarry.testing.kit import Jobs as Jobs
    from tarry.testing.plugin import jobs as jobs

__all__ = ["Enqueued", "Jobs", "Reply", "Sent", "jobs"]


def __getattr__(name: str) -> Any:
    if name == "Jobs":
        from tarry.testing.kit import Jobs  # noqa: PLC0415

        return Jobs
    if name == "Enqueued":
        from tarry.testing.enqueued import Enqueued  # noqa: PLC0415

        return Enqueued
    if name in ("Reply", "Sent"):
        from tarry.testing import fake_endpoints  # noqa: PLC0415

        return getattr(fake_endpoints, name)
    if name == "jobs":
        from tarry.testing.plugin import jobs  # noqa: PLC0415

        return jobs
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
