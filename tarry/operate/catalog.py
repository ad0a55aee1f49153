"""All methods that are made for every way in."""

from tarry.operate import (
    audit,
    connections,
    endpoints,
    errors,
    flows,
    history,
    hosts,
    jobs,
    limits,
    operations,
    queues,
    schedules,
    signals,
    stores,
    tasks,
)
from tarry.operate.method import Method

METHODS: tuple[Method, ...] = (
    *jobs.METHODS,
    *flows.METHODS,
    *signals.METHODS,
    *queues.METHODS,
    *schedules.METHODS,
    *limits.METHODS,
    *operations.METHODS,
    *errors.METHODS,
    *tasks.METHODS,
    *endpoints.METHODS,
    *hosts.METHODS,
    *stores.METHODS,
    *connections.METHODS,
    *audit.METHODS,
    *history.METHODS,
)
"""Each of them. A subject has its line here, and all ways in have it."""
