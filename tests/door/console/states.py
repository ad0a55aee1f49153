"""Words that pages show, of values that are no enumeration of their own."""

CIRCUITS = ("closed", "open", "half open", "asked to wait")
HOST_STATES = ("starting", "serving", "resting", "stopping", "quitting", "lost")
SET_BY = ("hand", "code")
OUTCOMES = ("delivered", "again", "final", "disabled")
"""Of an attempt to deliver a job."""
