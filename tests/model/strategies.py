"""Random jobs, outcomes and rules for the tests of the lifecycle."""

from hypothesis import strategies as st

from tarry.model import outcome
from tarry.model.duration import DAY, HOUR
from tarry.model.job import Job, State
from tarry.model.lifecycle import MAX_CRASHES, Rules
from tarry.model.retry import Retry
from tests.lifecycle_page import NOW

IN_NO_FLOW = tuple(state for state in State if state is not State.BLOCKED)

times = st.integers(NOW - 10 * DAY, NOW + 10 * DAY)
delays = st.integers(0, 2 * DAY)
notes = st.binary(max_size=8)
kinds = st.sampled_from([(), ("ValueError", "Exception"), ("ConnectionError", "OSError"), ("TimeoutError", "OSError")])

retries = st.builds(
    Retry,
    st.none() | st.integers(0, 6),
    st.sampled_from(["fixed", "linear", "exponential", "2n+1 minutes", ("1s", "5m"), (0,)]),
    base=st.sampled_from([0, 1, "5m"]),
    jitter=st.floats(0, 1),
    only=st.sampled_from([(), (OSError,)]),
    never=st.sampled_from([(), (ConnectionError,)]),
    within=st.none() | st.sampled_from(["1s", "1h"]),
)
rules = st.builds(Rules, retries, keep_done=st.sampled_from([0, 1, HOUR]), keep_dead=st.sampled_from([0, 1, 30 * DAY]))

uncounted = st.one_of(
    st.builds(outcome.Returned, notes),
    st.just(outcome.Lost(on=False)),
    st.just(outcome.Released()),
    st.builds(outcome.Snoozed, delays),
    st.builds(outcome.Suspended, st.integers(0, 2**60)),
    st.builds(outcome.Cancelled, st.text(max_size=5)),
    st.just(outcome.Expired()),
    st.just(outcome.Unknown()),
    st.just(outcome.Unread("away")),
    st.just(outcome.Quarantined()),
)
raised = st.builds(outcome.Raised, notes, kinds, st.booleans(), st.none() | delays)
counted = st.one_of(raised, st.builds(outcome.TimedOut, notes), st.just(outcome.Lost(on=True)))
outcomes = st.one_of(uncounted, counted)


@st.composite
def jobs(draw: st.DrawFn, states: tuple[State, ...] = IN_NO_FLOW, crashes: int = MAX_CRASHES - 1) -> Job:
    """A job in one of the states, with any history that it may have."""
    made = draw(st.integers(NOW - 10 * DAY, NOW)) // 1000
    gone = draw(st.integers(0, crashes))
    return Job(
        id=made.to_bytes(6, "big") + b"\x7a" + draw(st.binary(min_size=9, max_size=9)),
        task="shop.send",
        body=draw(notes),
        queue=draw(st.sampled_from(["default", "mail"])),
        priority=draw(st.integers(-5, 5)),
        due=draw(times),
        state=draw(st.sampled_from(states)),
        epoch=draw(st.integers(0, 2**40)),
        failures=gone + draw(st.integers(0, 8)),
        crashes=gone,
        owner=draw(st.sampled_from(["", "worker-1"])),
        key=draw(st.none() | st.just("ann")),
        note=draw(notes),
    )


running = jobs((State.RUNNING,))
