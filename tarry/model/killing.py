"""Why a worker's process is killed for the sake of a job that does not end: numbers for the scoreboard, texts for the
log."""

TIMEOUT, CANCELLED, LEASE_LOST, NOT_WANTED, HOOKS = range(5)
"""NOT_WANTED: cancelled or lost, and the store could not be asked which."""

_TEXTS = {
    TIMEOUT: "past its timeout",
    CANCELLED: "though it was cancelled",
    LEASE_LOST: "though its lease was lost",
    NOT_WANTED: "though it was cancelled or its lease was lost",
    HOOKS: "in hooks that did not end",
}


def text_of(reason: int) -> str:
    """The end of a line: "the job still ran 3 s after its start, past its timeout"."""
    return _TEXTS.get(reason, "past its time")
