"""What a task may raise, or return, to decide its own outcome."""
# Exceptions, so that both ways work.

from tarry.model.duration import Duration, microseconds


class Verdict(Exception):
    """The base class of the four verdicts."""


class Snooze(Verdict):
    """Call me again after `delay` (seconds, timedelta or text); no attempt is used up."""

    def __init__(self, delay: Duration) -> None:
        self.delay = microseconds(delay)
        super().__init__(f"snoozed for {delay}")


class Cancel(Verdict):
    """The job is no longer wanted: it ends as cancelled, with the reason."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


class Fail(Verdict):
    """Failed for good: the job is dead at once, against all retry rules."""


class RetryAfter(Verdict):
    """Failed, and worth another attempt after `delay`; made by `Retry.after(delay)`. The retry limit still holds."""

    def __init__(self, delay: Duration) -> None:
        self.delay = microseconds(delay)
        super().__init__(f"asked to be retried after {delay}")
