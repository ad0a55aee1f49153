from tarry.worker.appetite import HORIZON, MOST_AHEAD, STALLED_AFTER, Appetite


def fed(appetite: Appetite, count: int, every: float, times: int, start: float = 0.0) -> float:
    """So many ended at every step; the time at the end."""
    now = start
    for _ in range(times):
        now += every
        appetite.ended(count, now)
    return now


def test_it_begins_with_what_can_run_at_once() -> None:
    assert (Appetite(4).target(), Appetite(4).ahead()) == (4, 0)


def test_with_no_slots_nothing_is_wanted() -> None:
    appetite = Appetite(0)
    fed(appetite, 100, 0.001, 50)
    assert appetite.target() == 0


def test_short_jobs_are_brought_ahead_by_the_rate_at_which_they_end() -> None:
    appetite = Appetite(1)
    fed(appetite, 10, 0.001, 50)
    assert 0.9 * 10_000 * HORIZON < appetite.ahead() <= 10_000 * HORIZON
    assert appetite.target() == appetite.ahead() + 1


def test_long_jobs_are_never_brought_ahead() -> None:
    appetite = Appetite(1)
    fed(appetite, 1, 0.1, 50)
    assert (appetite.ahead(), appetite.target()) == (0, 1)


def test_there_is_a_bound() -> None:
    appetite = Appetite(1)
    fed(appetite, 100_000, 0.001, 50)
    assert appetite.ahead() == MOST_AHEAD


def test_idle_time_does_not_count_as_slowness() -> None:
    appetite, patient = Appetite(1), Appetite(1)
    now = fed(appetite, 10, 0.001, 50)
    fed(patient, 10, 0.001, 50)
    appetite.idle(now + 60)
    fed(appetite, 10, 0.001, 5, now + 60)
    fed(patient, 10, 0.001, 1, now + 60)
    assert appetite.ahead() >= 0.9 * 10_000 * HORIZON > patient.ahead()


def test_it_stalls_when_nothing_ends_for_long_and_then_begins_anew() -> None:
    appetite = Appetite(1)
    now = fed(appetite, 10, 0.001, 50)
    assert not appetite.stalled(now + STALLED_AFTER * 0.9)
    assert appetite.stalled(now + STALLED_AFTER * 1.1)
    appetite.forget()
    assert appetite.target() == 1
    appetite.idle(now + 10)
    assert not appetite.stalled(now + 10)
