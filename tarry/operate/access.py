"""What callers may do."""

from enum import StrEnum
from typing import Protocol


class Scope(StrEnum):
    """What a caller may do."""

    PUT = "put"
    """Enqueue jobs, and read what became of those."""
    TAKE = "take"
    """Claim jobs, and say how they ended."""
    READ = "read"
    """Look at everything."""
    OPERATE = "operate"
    """Cancel, retry, move and delete jobs; pause queues; set limits; run schedules."""
    ADMIN = "admin"
    """Change what the server does: tasks, and whatever else is set for all."""


class Caller(Protocol):
    """Who sent a request."""

    @property
    def name(self) -> str:
        """For logs: the name of its token or password; empty if it needed none."""

    @property
    def entry(self) -> str:
        """What names its token or password among all of them: a session is made of it."""

    @property
    def queues(self) -> tuple[str, ...]:
        """Names and patterns (`shop-*`) of the queues that it may use; empty: all of them."""

    @property
    def namespace(self) -> str:
        """What stands before its keys in the store, so that it neither takes nor sees those of others; empty: it may
        use any key."""

    def check_task(self, task: str, queue: str | None) -> None:
        """NotAllowed if it may not put jobs of that task. queue: the task's own; None: the task is not known here."""

    def check(self, scope: Scope, queue: str | None = None) -> None:
        """NotAllowed if this caller may not do that with that queue; None: with any queue at all. Busy if it calls too
        often."""

    def allows(self, scope: Scope, queue: str) -> bool:
        """Whether it may do that with that queue."""


class AnonymousCaller:
    """A caller that may do everything."""

    name = entry = namespace = ""
    queues: tuple[str, ...] = ()

    def check_task(self, task: str, queue: str | None) -> None:
        """Allows it."""

    def check(self, scope: Scope, queue: str | None = None) -> None:
        """Allows it."""

    def allows(self, scope: Scope, queue: str) -> bool:
        """Always true."""
        return True


ANYONE = AnonymousCaller()
