"""A place where the stories happen: an app with a ledger, and masters that are killed in the middle."""

import os
import signal
from collections import Counter
from pathlib import Path

from msgspec import Struct, json

from tarry.store.rules import ids
from tests.cli.project import Project, alive, until

APP = Path(__file__).with_name("app.py").read_text()


class Line(Struct):
    """What a task told."""

    what: str
    job: str
    attempt: int
    pid: int
    at: float


class Scene(Project):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, APP)
        self.write("ledger", "")

    def ledger(self, what: str | None = None) -> list[Line]:
        lines = (self.directory / "ledger").read_bytes().splitlines(keepends=True)
        told = [json.decode(line, type=Line) for line in lines if line.endswith(b"\n")]
        return [line for line in told if what in (None, line.what)]

    def times(self, what: str) -> Counter[str]:
        """How often each job told this."""
        return Counter(line.job for line in self.ledger(what))

    def open(self, gate: str) -> None:
        self.write(gate, "")

    def states(self) -> dict[str, str]:
        return {ids.text(job.id): job.state for job in self.jobs()}

    def all_finished(self) -> bool:
        return all(job.state.finished for job in self.jobs())

    def running(self) -> list[str]:
        """The jobs that workers show to be at."""
        return [job.id for child in self.children() for job in child.running]

    def begun(self, count: int, *, asleep: int | None = None) -> None:
        """Waits until so many attempts have begun; and until all but so many of them only wait."""
        until(lambda: len(self.ledger("began")) >= count)
        if asleep is not None:
            until(lambda: len(self.running()) == count - asleep)

    def ended(self, *jobs: str) -> None:
        """Waits for them. One that was on at two deaths rests before its third attempt, and is hurried here."""
        until(lambda: all(self._ended(id) for id in jobs), 60)

    def _ended(self, id: str) -> bool:
        job = self.job(id)
        if job.crashes == 2 and job.state == "scheduled":
            assert 0 <= job.due - job.state_since - 5_000_000 < 100_000, "longer by what the clock is unsure about"
            self.tarry("jobs", "retry", id)
        return job.state.finished

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        os.kill(pid, number)
        if number == signal.SIGKILL:
            until(lambda: not alive(pid))

    def replaced(self, *gone: int, role: str = "worker") -> list[int]:
        """The pids of the role's processes, once those are replaced."""
        # Counted anew each time: for a moment the one that is gone has its seat still, and the new one its own already.
        return until(lambda: _new(self.pids(role), gone, len(self.board_seats(role))))

    def board_seats(self, role: str) -> list[str]:
        return [child.name for child in self.board().children if child.role == role]

    def stopped(self) -> None:
        """Ends the master gracefully and checks that nobody stayed."""
        assert self.tarry("stop").status == 0
        until(lambda: not self.processes())


def _new(pids: list[int], gone: tuple[int, ...], count: int) -> list[int]:
    return pids if len(pids) == count and not set(pids) & set(gone) else []
