"""Any commands in any order: beanstalkd and tarry give the same answers."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry import App
from tarry.store.shards.sharded import ShardedStore
from tests.every_store.conftest import app  # noqa: F401 - each kind of store
from tests.server.beanstalk.serving import serving
from tests.server.beanstalk.talking import Step, Talk
from tests.server.beanstalk.test_conformance import Connect, beanstalkd

_TUBE = "{tube}"
# Of two watched tubes with jobs, tarry's order is another one: so the one that has some beside is not watched.
# As often as each is worth it: without jobs that are reserved, most commands say NOT_FOUND.
_OF_JOBS = ["release", "bury", "stats-job", "delete", "touch", "kick-job", "peek", "reserve-job"]
_VERBS = [
    *["put", "reserve-with-timeout 0"] * 6,
    *["release", "bury", "stats-job"] * 2,
    *_OF_JOBS,
    *["kick", "peek-ready", "peek-delayed", "peek-buried", f"stats-tube {_TUBE}", "pause-tube", "pause-tube"],
    *[f"use {_TUBE}-2", f"use {_TUBE}", f"use {_TUBE}", f"watch {_TUBE}-3", f"ignore {_TUBE}-3"],
    *["list-tube-used", "list-tubes-watched"],
]


class Act(NamedTuple):
    """What a client does."""

    client: str
    verb: str
    number: int
    """Which job, or how many."""
    priority: int
    delay: int


ACTS = st.builds(
    Act,
    st.sampled_from("aaab"),
    st.sampled_from(_VERBS),
    st.integers(0, 20),
    st.integers(0, 2000),
    st.sampled_from([0, 0, 100]),
)


class Writer:
    """Makes a script of acts. Some it leaves out or changes: docs/beanstalk.md says that tarry's answers may differ."""

    def __init__(self, tube: str) -> None:
        self._tube = tube
        self._puts, self._acts, self._is_paused = 0, 0, False

    def script(self, talk: Iterable[Act]) -> list[Step]:
        """The steps of the acts."""
        begin = f"use {self._tube}\r\nwatch {self._tube}\r\nignore default\r\n"
        acts = [Step(act.client, f"{text}\r\n") for act in talk if (text := self._line(act))]
        return [*(Step(client, begin, 3) for client in "ab"), *acts]

    def _line(self, act: Act) -> str:
        self._acts += 1
        if act.verb == "put":
            self._puts += 1
            return f"put {self._priority(act)} {act.delay} 1000 3\r\n{self._puts:03}"
        if act.verb == "pause-tube":
            # Mostly it ends a pause, or all waits would be in vain.
            self._is_paused = act.delay > 0 and act.number % 3 == 0
            return f"pause-tube {self._tube} {act.delay * self._is_paused}"
        if act.verb == "kick":
            return f"kick {act.number % 4}"
        return self._of_job(act) if act.verb in _OF_JOBS else act.verb.replace(_TUBE, self._tube)

    def _of_job(self, act: Act) -> str:
        # Of a paused tube, no job is reserved by its number either.
        if not self._puts or (act.verb == "reserve-job" and self._is_paused):
            return ""
        priority = self._priority(act)
        rest = {"release": f" {priority} {act.delay}", "bury": f" {priority}"}.get(act.verb, "")
        return f"{act.verb} {{{act.number % self._puts + 1}}}{rest}"

    def _priority(self, act: Act) -> int:
        # Each another one: within a priority, jobs that were released or kicked have another order.
        return act.priority * 100 + self._acts


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    with beanstalkd(tmp_path_factory.mktemp("real") / "beanstalkd") as connect:
        yield connect


@pytest.fixture
def mine(app: App) -> Iterator[Connect]:  # noqa: F811
    if isinstance(app.client.store, ShardedStore):
        pytest.skip("shards have no common order")
    with serving(app) as door:
        yield door.connect


_tubes = iter(range(10**9))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(talk=st.lists(ACTS, min_size=20, max_size=60))
def test_any_talk_has_the_answers_of_beanstalkd(real: Connect, mine: Connect, talk: list[Act]) -> None:
    # A tube of its own for each: those of an earlier one may have jobs.
    steps = Writer(f"t{next(_tubes):06}").script(talk)
    assert Talk(mine).run(steps) == Talk(real).run(steps)
