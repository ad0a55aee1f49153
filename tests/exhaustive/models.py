"""The models, and how deep each is explored."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from tarry.model.flow.wiring import COMPENSATE, GO_ON
from tarry.model.job import HELD, WAITING
from tests.exhaustive.explorer import Explored, Model, explore
from tests.exhaustive.flow_world import FlowWorld
from tests.exhaustive.job_state import new_job
from tests.exhaustive.job_world import JobWorld, Options
from tests.exhaustive.store_state import LATER

MOST_STATES = 3_000_000
"""Some 2 GB."""
_FEW = ("returned", "raised", "snoozed", "released")
Parents = Sequence[Sequence[int]]


class Entry(Struct, frozen=True):
    """A model. quick: the depth in `make test`; deep: that in `make exhaustive`; None: until nothing is new."""

    build: Callable[[], Model[Any]]
    quick: int | None
    deep: int | None

    def run(self, depth: int | None) -> Explored:
        """Explores it to that depth."""
        return explore(self.build(), depth, MOST_STATES)


def _jobs(name: str, options: Options, *fields: dict[str, object]) -> Callable[[], Model[Any]]:
    jobs = [new_job(number, **one) for number, one in enumerate(fields)]
    return lambda: JobWorld(name, jobs, options)


def _with(outcomes: tuple[str, ...] = _FEW, hands: tuple[str, ...] = (), **happens: Any) -> Options:
    """Nothing else happens."""
    nothing: dict[str, Any] = {"moves": False, "late_copies": False, "deaths": False}
    return Options(outcomes, hands, **(nothing | happens))


_KEYED: dict[str, object] = {"key": "k", "key_held_until": HELD}
_PLAIN: dict[str, object] = {}
_KEY_FOR_A_TIME = _KEYED | {"key_ttl": 10**9}
_KEY_WHILE_WAITING = _KEYED | {"key_ttl": WAITING}


def _flow(name: str, parents: Parents, **options: Any) -> Callable[[], Model[Any]]:
    return lambda: FlowWorld(f"flow: {name}", parents, **options)


_FLOWS, _NODES = ("cancel flow", "deadline", "retry flow"), ("run node", "cancel node")
_DIAMOND: Parents = ([], [1], [1], [2, 3])
_CROSS: Parents = ([], [], [1, 2], [1, 2], [3, 4])
_CHAIN: Parents = ([], [1], [2], [3], [4])
_FAN: Parents = ([], [1], [1], [1], [2, 3, 4])

FLOW_MODELS = {
    "chain": Entry(_flow("a chain of 5", _CHAIN, hands=_FLOWS), None, None),
    "diamond": Entry(_flow("a diamond, in pieces", _DIAMOND, hands=_FLOWS, pieces=True), None, None),
    "fan": Entry(_flow("a diamond of 5", _FAN, hands=_FLOWS), 7, None),
    "cross": Entry(_flow("two pairs and an end, in pieces", _CROSS, pieces=True), 10, None),
    "go on": Entry(_flow("a diamond that goes on", _DIAMOND, policies={2: GO_ON}), None, None),
    "undo": Entry(_flow("a diamond that is undone", (*_DIAMOND, []), policies={2: COMPENSATE}, undo=5), None, None),
    "two ways": Entry(
        _flow(
            "undone after one failure only", ([], [], []), policies={1: COMPENSATE}, undo=3, hands=(*_FLOWS, *_NODES)
        ),
        6,
        None,
    ),
    "deleted": Entry(_flow("a diamond, nodes deleted", _DIAMOND, hands=("delete node", "retry flow")), None, None),
    "by hand": Entry(
        _flow("a diamond, people at nodes", _DIAMOND, policies={2: GO_ON}, hands=(*_FLOWS, *_NODES)), 5, 14
    ),
}

JOB_MODELS = {
    "all": Entry(_jobs("one job: all that can happen", Options(), _KEYED), 5, 8),
    "deaths": Entry(_jobs("one job: deaths, crashes", _with(deaths=True), _KEYED), 10, None),
    "keyed": Entry(
        _jobs(
            "one job: late copies, people",
            _with(hands=("cancel", "run now", "delete"), late_copies=True, deaths=True),
            _KEYED,
        ),
        7,
        11,
    ),
    "moved": Entry(_jobs("one job: moved, cancelled", _with(("returned",), ("cancel",), moves=True), _KEYED), 9, None),
    "expiring": Entry(_jobs("one job: expires", _with(), {"expires": LATER}), None, None),
    "two keyed": Entry(
        _jobs("two jobs of one key", _with(("returned", "raised"), ("cancel", "run now"), deaths=True), _KEYED, _KEYED),
        6,
        10,
    ),
    "key for a time": Entry(
        _jobs("two jobs, key held after the end", _with(("returned",), ("run now",)), _KEY_FOR_A_TIME, _KEY_FOR_A_TIME),
        7,
        12,
    ),
    "key while waiting": Entry(
        _jobs(
            "two jobs, key held while waiting", _with(("returned", "released")), _KEY_WHILE_WAITING, _KEY_WHILE_WAITING
        ),
        7,
        12,
    ),
    "failover": Entry(_jobs("a store that loses a claim", _with(("returned", "released"), loses=1), _PLAIN), 9, None),
    # No late copies: one that came after a failover, and after the same worker had claimed the same job once more,
    # would count for that attempt, since owner and epoch are the same.
    "failover, deaths": Entry(
        _jobs(
            "a store that loses two, deaths", _with(("returned", "raised"), ("cancel",), deaths=True, loses=2), _PLAIN
        ),
        7,
        10,
    ),
    "failover, keyed": Entry(
        _jobs("two jobs of one key, a claim lost", _with(("returned",), deaths=True, loses=1), _KEYED, _KEYED), 6, 10
    ),
    "keyed and plain": Entry(_jobs("two jobs: all that can happen", Options(), _KEYED, _PLAIN), 4, 6),
}

MODELS = JOB_MODELS | FLOW_MODELS
