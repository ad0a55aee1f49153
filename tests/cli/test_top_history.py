"""The last minutes by the history, as `tarry top` shows them. Time is the tests' own."""

import pytest
from msgspec.structs import replace

from tarry.cli.top import facts
from tarry.cli.top.facts import HistoryFigures, JobCounts, QueueRow
from tarry.cli.top.rates import QueueRates
from tarry.cli.top.text import chart_lines, recent_line
from tarry.client.clock import FakeClock
from tarry.keeper.backlog import sample_backlogs
from tarry.model import lifecycle
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Outcome, Raised, Returned
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.history_recent import MINUTES_READ, RecentHistory, recent_figures, recent_period
from tarry.store.rules.base import Want

START = 1_800_000_000 * SECOND
"""The start of a minute."""
FAILS = Raised(b"{}", final=True)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock.now)


def put(store: MemoryStore, count: int, queue: str = "mail") -> None:
    now = store.time()
    job = Job(b"", "send", b"[]", queue=queue, due=now, state_since=now)
    store.insert([replace(job, id=store.new_id("send")) for _ in range(count)])


def end(store: MemoryStore, clock: FakeClock, outcomes: list[Outcome], waited: float, ran: float) -> None:
    clock.advance(waited)
    jobs = store.claim([Want("mail", 0, len(outcomes))], len(outcomes), "ann", HOUR, clock.now())
    clock.advance(ran)
    ends = [lifecycle.after(job, way, DEFAULT, clock.now()) for job, way in zip(jobs, outcomes, strict=True)]
    assert all(store.apply(ends, clock.now()))


def keep(store: MemoryStore) -> None:
    """What a keeper does each second."""
    now = store.time()
    store.history.sum_up(now)
    store.history.sample(now, store, lambda store: sample_backlogs(store, now))


def look(store: MemoryStore) -> RecentHistory | None:
    now = store.time()
    period = recent_period(now)
    return recent_figures(store.history.read(period.resolution, period.start, period.end), now)


def found(store: MemoryStore) -> RecentHistory:
    recent = look(store)
    assert recent is not None
    return recent


def test_rates_are_per_minute_since_somebody_counts(store: MemoryStore, clock: FakeClock) -> None:
    put(store, 12)
    end(store, clock, [Returned(), Returned(), FAILS], 1, 29)
    keep(store)
    mail = found(store).queues["mail"]
    assert (mail.put, mail.ended, mail.failed) == (24.0, 6.0, 2.0)
    assert mail.waited is not None
    assert mail.ran is not None
    assert mail.waited.p50 == pytest.approx(1, rel=0.125)
    assert mail.ran.p99 == pytest.approx(29, rel=0.125)
    clock.advance(90)
    keep(store)
    assert found(store).queues["mail"].put == 6.0
    assert found(store).total == found(store).queues["mail"]


def test_what_is_longer_ago_than_five_minutes_is_only_in_the_minutes(store: MemoryStore, clock: FakeClock) -> None:
    put(store, 12)
    for _ in range(5):
        keep(store)
        clock.advance(60)
    keep(store)
    recent = found(store)
    assert recent.queues == {}
    assert recent.total.put == 0
    assert len(recent.minutes) == MINUTES_READ
    assert [(minute.start, minute.put) for minute in recent.minutes[-6:]] == [
        (START // SECOND + 60 * number, 0 if number else 12) for number in range(6)
    ]


def test_without_a_keeper_nothing_is_known(store: MemoryStore, clock: FakeClock) -> None:
    put(store, 3)
    store.history.sum_up(clock.now())
    assert look(store) is None
    keep(store)
    clock.advance(179)
    assert found(store).queues["mail"].put > 0
    clock.advance(1)
    assert look(store) is None


def test_the_lines_of_the_header(store: MemoryStore, clock: FakeClock) -> None:
    put(store, 120)
    keep(store)
    clock.advance(60)
    end(store, clock, [Returned()] * 60, 0.0, 30.0)
    keep(store)
    recent = found(store)
    assert recent_line(recent) == "80/min in, 40 out, 0 failed attempts   waited 1m2s, p99 1m2s   ran 31.5s, p99 31.5s"
    lines = chart_lines(recent)
    assert [line[:8].strip() for line in lines] == ["in/min", "out/min"]
    assert lines[0] == f"in/min   {' ' * 28}█    120 in 30 min, at most 120 in one"


def rows(history: HistoryFigures | None, **rates: float | bool) -> list[QueueRow]:
    flows = {"mail": QueueRates(**rates)}  # type: ignore[arg-type]
    return facts.queues(JobCounts({"mail": {State.READY: 3}}, {}, {}, flows), None, history)


def test_counted_rates_stay_where_they_are_exact(store: MemoryStore, clock: FakeClock) -> None:
    put(store, 12)
    put(store, 3, "other")
    end(store, clock, [Returned()] * 6, 1, 29)
    keep(store)
    history = HistoryFigures(look(store))
    (mail, other) = rows(history, came=7.0, left=6.0, died=0.0)
    assert (mail.came, mail.left, mail.ready) == (7.0, 6.0, 3)
    assert mail.wait == pytest.approx(1, rel=0.125)
    assert mail.recent is not None
    assert mail.recent.put == 24.0
    # Where a count says nothing, or too little, the history does.
    assert other.came == 0.1
    (mail, _) = rows(history, came=7.0, left=0.0, died=0.0, least=True)
    assert (mail.came, mail.left, mail.least) == (0.4, 0.2, False)


def test_where_no_keeper_sums_up_counts_and_samples_are_shown_as_ever() -> None:
    for history in (None, HistoryFigures(None)):
        (mail,) = rows(history, came=7.0, left=0.5, died=0.0, least=True)
        assert (mail.came, mail.left, mail.least, mail.wait, mail.recent) == (7.0, 0.5, True, None, None)


def test_a_queue_in_which_nothing_happens_has_rates_of_zero(store: MemoryStore) -> None:
    keep(store)
    (mail,) = rows(HistoryFigures(look(store)))
    assert (mail.came, mail.left, mail.wait) == (0.0, 0.0, None)
    assert mail.recent is not None
    assert (mail.recent.failed, mail.recent.ran) == (0.0, None)
