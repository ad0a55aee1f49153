"""The attempts of a job: those that were made, and the maximum number as far as this process knows it."""

from collections.abc import Sequence

from tarry.cli.shared.printing import format_clock
from tarry.client.job_records import most_attempts
from tarry.model.attempts import Attempt, acts_of, attempts_of
from tarry.model.duration import format_duration
from tarry.model.job import Job
from tarry.process.loading import CommandContext
from tarry.terminal import harmless, say


class Attempts:
    """Maximum attempts of these jobs, from their own rules and from those of known tasks."""

    def __init__(self, setup: CommandContext, jobs: Sequence[Job]) -> None:
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


def print_attempts(job: Job) -> None:
    """Prints a line for each known attempt of the job, the oldest first; nothing if there is none."""
    known = attempts_of(job)
    if known.left_out:
        say(f"attempts  {known.left_out} before left out:")
    elif known.attempts:
        say("attempts")
    for one in known.attempts:
        say(f"  {harmless(_line(one))}")


def print_acts(job: Job) -> None:
    """Prints a line for each thing that was done to the job by hand, the oldest first."""
    for one in acts_of(job):
        origin = " ".join(part for part in (one.address, f"({one.via})" if one.via else "") if part)
        say(harmless(f"act       {format_clock(one.at)}: {one.act} by {one.who or '-'} from {origin}"))


def _line(one: Attempt) -> str:
    # Of an attempt that was done at once only its end is kept.
    began = format_clock(one.started) if one.started else f"ended {format_clock(one.ended)}"
    took = f" for {format_duration(one.ended - one.started)}" if one.started and one.ended else ""
    where = f" on {one.owner}" if one.owner else ""
    error = " ".join(one.error.split())
    return f"{one.number}: {began}{took}{where}: {one.outcome.replace('_', ' ')}{error and f', {error}'}"
