"""How a durable task leaves its slot: an exception that the worker turns into the outcome Suspended."""

import os
import traceback

from tarry.model.outcome import Suspended


class Suspension(BaseException):
    """Raised in a task that sleeps or waits for a signal. Not an `Exception`, so that `except Exception` does not catch
    it. `finally` and `with` blocks of the task run."""

    def __init__(self, outcome: Suspended) -> None:
        super().__init__("the task sleeps or waits for a signal; it is called again then")
        self.outcome = outcome

    def caught_at(self) -> str:
        """Where the task caught it, as `file:line`; empty: not known, as where asyncio caught it."""
        # The first entry is the frame that caught it, at the line inside its `try`.
        places = traceback.extract_tb(self.__traceback__, limit=1)
        if not places or os.path.dirname(places[0].filename) == os.path.dirname(__file__):
            return ""
        return f"{places[0].filename}:{places[0].lineno}"


def find_suspension(error: BaseException) -> Suspension | None:
    """The suspension that this error is. That of a TaskGroup counts if it holds nothing else."""
    if isinstance(error, Suspension):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    found, others = error.split(Suspension)
    return _first(found) if found is not None and others is None else None


def _first(group: BaseExceptionGroup[Suspension]) -> Suspension:
    """A suspension of the group, however deep it lies."""
    first = group.exceptions[0]
    return first if isinstance(first, Suspension) else _first(first)
