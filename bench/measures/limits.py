"""What limits cost: a drain by two workers under each kind of them, as a share of one without."""

from collections.abc import Iterator

from bench.app import noop
from bench.limited_app import LIMITED
from bench.measure import Figure, Target, goal, measure, share
from bench.measures.draining import drained
from bench.place import APP, Bench
from tarry import Task

_JOBS, _ON_SERVERS = 100_000, 60_000
_NONE = "drain, no limit"
_OF_TASK = share(0.8)


@measure("limits", limit=900)
def limits(bench: Bench) -> Iterator[Figure]:
    """The plain drain is done first and last, since others may use the machine meanwhile."""
    yield from _drained(bench, _NONE, noop, None)
    of_key = goal(bench, sqlite=share(0.6), redis=share(0.6), postgresql=share(0.6), mysql=share(0.5))
    for name, task in LIMITED.items():
        yield from _drained(bench, f"drain, {name}", task, _OF_TASK if "not reached" in name else of_key)
    yield from _drained(bench, _NONE, noop, None)


def _drained(bench: Bench, name: str, task: Task[[int, str], None], target: Target | None) -> Iterator[Figure]:
    jobs = _JOBS if bench.kind == "sqlite" else _ON_SERVERS
    app = APP if task is noop else "bench.limited_app:app"
    against = "" if task is noop else _NONE
    for figure in drained(bench, name, task, 2, against, target, jobs, app=app):
        if "RSS" not in figure.name:
            yield figure
