"""The numbers that stand for states in a store."""

# Never change one, only add: every existing database has them.

from tarry.model.job import State

STATES = (State.SCHEDULED, State.READY, State.RUNNING, State.DONE, State.DEAD, State.CANCELLED)
CODE = {state: code for code, state in enumerate(STATES)}
