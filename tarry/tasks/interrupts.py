"""What tarry raises inside a running task, to end it."""


class Interrupted(BaseException):
    """Raised inside a running task by tarry. Not an `Exception`, so that a task's `except Exception` does not swallow
    it; catch it to clean up, then let it go on."""


class TimeLimit(Interrupted):
    """The attempt has run for longer than the task's timeout."""


class CalledBack(Interrupted):
    """The job was cancelled, or is another worker's by now."""
