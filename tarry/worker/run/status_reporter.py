"""Shows what a worker does to the outside, such as on the master's scoreboard."""

from typing import Protocol

from tarry.model.killing import TIMEOUT


class StatusReporter(Protocol):
    """What is shown outlives the process: when a worker dies, it tells which jobs were running."""

    def on(self, cell: int, id: bytes, epoch: int, task: bytes, kill_at: float, reason: int = TIMEOUT) -> None:
        """The cell's thread runs this job now. kill_at: time.monotonic() from which the job is stuck, for this reason;
        0.0: never."""

    def off(self, cell: int) -> None:
        """The cell's thread runs no job."""

    def limit(self, cell: int, kill_at: float, reason: int) -> None:
        """The job that the cell's thread runs is stuck from then on. The thread must not begin another meanwhile."""

    def thread(self, cell: int, ident: int) -> None:
        """The cell's thread has this threading.get_ident()."""

    def count(self, processed: int, failed: int) -> None:
        """How many jobs have ended here so far, and how many attempts have failed."""

    def beat(self, rss: int) -> None:
        """A heartbeat. rss: resident bytes."""

    def load(self, fill: float, held: int) -> None:
        """fill: the part of the slots that is in use, 0 to 1. held: how many jobs are claimed."""


class NullReporter:
    """Shows nothing."""

    def on(self, cell: int, id: bytes, epoch: int, task: bytes, kill_at: float, reason: int = TIMEOUT) -> None:
        """Ignored."""

    def off(self, cell: int) -> None:
        """Ignored."""

    def limit(self, cell: int, kill_at: float, reason: int) -> None:
        """Ignored."""

    def thread(self, cell: int, ident: int) -> None:
        """Ignored."""

    def count(self, processed: int, failed: int) -> None:
        """Ignored."""

    def beat(self, rss: int) -> None:
        """Ignored."""

    def load(self, fill: float, held: int) -> None:
        """Ignored."""
