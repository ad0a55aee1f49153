"""Why the master kills a worker's process whose job does not end: numbers for the scoreboard, texts for the log."""

from tarry.model.job import Job, State

# Numbers, since the scoreboard is memory shared between processes and has no room for text.
TIMEOUT, CANCELLED, LEASE_LOST, NOT_WANTED, HOOKS, ENDED = range(6)
"""NOT_WANTED: cancelled or lost, but the store could not be asked which. ENDED: an operator ended this
attempt, whatever the job is to become."""

_TEXTS = {
    TIMEOUT: "past its timeout",
    CANCELLED: "though it was cancelled",
    LEASE_LOST: "though its lease was lost",
    NOT_WANTED: "though it was cancelled or its lease was lost",
    HOOKS: "in hooks that did not end",
    ENDED: "and an operator ended it",
}


def text_of(reason: int) -> str:
    """The end of a line: "the job still ran 3 s after its start, past its timeout"."""
    return _TEXTS.get(reason, "past its time")


def reason_for(job: Job | None) -> int:
    """Why a worker no longer owns a job. job: as it is in the store now; None: it is not there, or is not known."""
    if job is None:
        return NOT_WANTED
    return CANCELLED if job.state is State.CANCELLED else LEASE_LOST
