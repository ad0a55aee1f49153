"""The entries of an outbox."""

from msgspec import Struct

from tarry.model.job import Job


class Entry(Struct, frozen=True):
    """A job, and how to treat another job that may hold its key."""

    job: Job
    on_duplicate: str = "return"
    idempotency: str | None = None
    running: str = "return"
    leading: bool = False


class Content(Struct, frozen=True):
    """How many jobs an outbox holds, and their bytes. oldest: when the first was made, 0 for none."""

    jobs: int = 0
    bytes: int = 0
    oldest: int = 0
