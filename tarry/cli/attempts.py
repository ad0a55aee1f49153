"""How many attempts a job has at most, as far as that is known here."""

from collections.abc import Sequence

from tarry.model.job import Job
from tarry.model.overrides import retry_of
from tarry.model.retry import Retry
from tarry.process.loading import Setup

_UNKNOWN = Retry(None)


class Attempts:
    """Of jobs that are to be shown: their own rules, and those of the tasks that are known."""

    def __init__(self, setup: Setup, jobs: Sequence[Job]) -> None:
        self._app = setup.home
        if any(job.task not in self._app.tasks for job in jobs):
            setup.known_tasks()  # HTTP tasks are read when they are asked for

    def maximum(self, job: Job) -> int | None:
        """None: no limit, or not known here."""
        rule = self._app.rules(job.task, job.queue).retry if job.task in self._app.tasks else _UNKNOWN
        return retry_of(job.headers, rule).attempts

    def text(self, job: Job) -> str:
        """`2 of 13`; `2` where the most is not known, or was passed since the rule was another."""
        most = self.maximum(job)
        return str(job.attempt) if most is None or job.attempt > most else f"{job.attempt} of {most}"
