"""The exceptions that tarry raises inside a running task, to end it."""


class Interrupted(BaseException):
    """Raised by tarry inside a running task. Not an `Exception`, so that `except Exception` in the task does not catch
    it. To clean up, catch it and raise it again."""


class TimeLimit(Interrupted):
    """The attempt has run for longer than the task's timeout."""


class CalledBack(Interrupted):
    """The job was cancelled, or now belongs to another worker."""
