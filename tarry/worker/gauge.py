"""What a worker shows of itself to the outside while it works; the master's scoreboard is one such place."""

from typing import Protocol

from tarry.model.killing import TIMEOUT


class Gauge(Protocol):
    """A slot that outlives its process: what stands there when a worker dies tells which jobs were on."""

    def on(self, cell: int, id: bytes, epoch: int, task: bytes, kill_at: float, reason: int = TIMEOUT) -> None:
        """The cell's thread works on this job now. kill_at: time.monotonic() from which it is stuck, for
        that reason; 0.0, never."""

    def off(self, cell: int) -> None:
        """The cell's thread works on no job."""

    def limit(self, cell: int, kill_at: float, reason: int) -> None:
        """The job that the cell's thread works on is stuck from then on. Not while that thread may go on to another."""

    def thread(self, cell: int, ident: int) -> None:
        """The cell's thread, by threading.get_ident()."""

    def count(self, processed: int, failed: int) -> None:
        """So many jobs ended here so far, and so many attempts failed."""

    def beat(self, rss: int) -> None:
        """Alive just now, with so many bytes of memory."""

    def load(self, fill: float, held: int) -> None:
        """From now on so great a part of what it can run at once is in use, 0 to 1; it holds so many jobs."""


class NoGauge:
    """Where nobody looks."""

    def on(self, cell: int, id: bytes, epoch: int, task: bytes, kill_at: float, reason: int = TIMEOUT) -> None:
        """Shown nowhere."""

    def off(self, cell: int) -> None:
        """Shown nowhere."""

    def limit(self, cell: int, kill_at: float, reason: int) -> None:
        """Shown nowhere."""

    def thread(self, cell: int, ident: int) -> None:
        """Shown nowhere."""

    def count(self, processed: int, failed: int) -> None:
        """Shown nowhere."""

    def beat(self, rss: int) -> None:
        """Shown nowhere."""

    def load(self, fill: float, held: int) -> None:
        """Shown nowhere."""
