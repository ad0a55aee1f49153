"""All methods that are made for every way in."""

from tarry.operate import jobs, limits, operations, queues, schedules
from tarry.operate.method import Method

METHODS: tuple[Method, ...] = (
    *jobs.METHODS,
    *queues.METHODS,
    *schedules.METHODS,
    *limits.METHODS,
    *operations.METHODS,
)
"""Each of them. A subject has its line here, and all ways in have it."""
