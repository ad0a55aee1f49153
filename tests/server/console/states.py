"""Words that pages show, of values that are no enumeration of their own."""

from typing import get_args

from tarry.model import attempts
from tarry.model.values.connection_records import ConnectionState
from tarry.server.console.views.job_course import OUTCOME_WORDS

CIRCUITS = ("closed", "open", "half open", "asked to wait")
HOST_STATES = ("starting", "serving", "resting", "stopping", "quitting", "lost")
SET_BY = ("hand", "code")
OUTCOMES = (
    *("delivered", "again", "final", "disabled"),
    *(OUTCOME_WORDS.get(outcome, outcome) for outcome in attempts.OUTCOMES),
)
"""Of an attempt to deliver a job, and of any attempt."""
DONE_TO_JOBS = ("retried", "cancelled", "moved", "edited", "cloned")
VIAS = ("http", "console", "command", "operation", "program")
"""How an act came."""
WORKER_STATES = ("starting", "stopping", "gone")
CONNECTION_STATES = get_args(ConnectionState)
PHASES = ("storing", "cancelling", "undoing")
"""Of a flow, where its state does not say it."""
REPLACED = ("jobs", "age", "memory", "hang", "crash", "killed", "signal")
