"""The numbers that stand for states in a store."""

# Never change one, only add: every existing database has them.

from tarry.model.job import State

STATES = (State.SCHEDULED, State.READY, State.RUNNING, State.DONE, State.DEAD, State.CANCELLED, State.BLOCKED)
"""A state by its code; the last one by -1."""
# From 3 on a job is finished, for every partial index and for older versions: they would delete a blocked one.
CODE = {state: code for code, state in enumerate(STATES[:-1])} | {State.BLOCKED: -1}


def state_of(code: int) -> State:
    """The state with this code; DEAD for a code that is none: another program has written it, or a newer tarry."""
    return STATES[code] if -1 <= code < len(STATES) - 1 else State.DEAD
