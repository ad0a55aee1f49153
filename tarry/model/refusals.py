"""Which changes the state of a job does not allow."""

from tarry.model import flow_rules
from tarry.model.job import Job, State


class NotPossible(ValueError):
    """The job's state does not allow this change."""


def refuse_by_flow(job: Job) -> None:
    """NotPossible if the job changes with its flow only."""
    if why := flow_rules.refusal(job):
        raise NotPossible(why)


def refuse_in(job: Job, state: State, why: str) -> None:
    """NotPossible, with this reason, if the job is in this state."""
    if job.state is state:
        raise NotPossible(why)


def refuse_unless_running(job: Job) -> None:
    """NotPossible if the job does not run."""
    if job.state is not State.RUNNING:
        raise NotPossible(f"it is {job.state}, not {State.RUNNING}")


def refuse_unless_waiting(job: Job) -> None:
    """NotPossible if the job does not wait."""
    refuse_by_flow(job)
    for state in (State.RUNNING, State.DONE, State.DEAD, State.CANCELLED):
        refuse_in(job, state, f"it is {state}, not waiting")
