"""The maximum number of attempts of a job, as far as this process knows it."""

from collections.abc import Sequence

from tarry.client.job_records import most_attempts
from tarry.model.job import Job
from tarry.process.loading import Setup


class Attempts:
    """Maximum attempts of these jobs, from their own rules and from those of known tasks."""

    def __init__(self, setup: Setup, jobs: Sequence[Job]) -> None:
        self._app = setup.home
        if any(job.task not in self._app.tasks for job in jobs):
            setup.known_tasks()  # loads the HTTP tasks

    def maximum(self, job: Job) -> int | None:
        """The maximum number of attempts; None: no limit, or not known here."""
        return most_attempts(job, self._app.tasks, self._app.rules)

    def text(self, job: Job) -> str:
        """`2 of 13`; `2` if the maximum is not known, or is exceeded."""
        most = self.maximum(job)
        # `3 of 2` would only puzzle: the rule has changed since.
        return str(job.attempt) if most is None or job.attempt > most else f"{job.attempt} of {most}"
