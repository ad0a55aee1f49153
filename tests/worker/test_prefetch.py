import pytest

from tarry.worker.capacity import HORIZON, MOST_AHEAD, SHARED_FROM, STALLED_AFTER, Prefetch


def fed(prefetch: Prefetch, count: int, every: float, times: int, start: float = 0.0) -> float:
    """So many ended at every step; the time at the end."""
    now = start
    for _ in range(times):
        now += every
        prefetch.record_ends(count, now)
    return now


def test_it_begins_with_what_can_run_at_once() -> None:
    assert (Prefetch(4).target(), Prefetch(4).ahead()) == (4, 0)


def test_with_no_slots_nothing_is_wanted() -> None:
    prefetch = Prefetch(0)
    fed(prefetch, 100, 0.001, 50)
    assert prefetch.target() == 0


def test_short_jobs_are_brought_ahead_by_the_rate_at_which_they_end() -> None:
    prefetch = Prefetch(1)
    fed(prefetch, 10, 0.001, 50)
    assert 0.9 * 10_000 * HORIZON < prefetch.ahead() <= 10_000 * HORIZON
    assert prefetch.target() == prefetch.ahead() + 1


def test_long_jobs_are_never_brought_ahead() -> None:
    prefetch = Prefetch(1)
    fed(prefetch, 1, 0.1, 50)
    assert (prefetch.ahead(), prefetch.target()) == (0, 1)


def test_there_is_a_bound() -> None:
    prefetch = Prefetch(1)
    fed(prefetch, 100_000, 0.001, 50)
    assert prefetch.ahead() == MOST_AHEAD


def test_idle_time_does_not_count_as_slowness() -> None:
    prefetch, patient = Prefetch(1), Prefetch(1)
    now = fed(prefetch, 10, 0.001, 50)
    fed(patient, 10, 0.001, 50)
    prefetch.record_idle(now + 60)
    fed(prefetch, 10, 0.001, 5, now + 60)
    fed(patient, 10, 0.001, 1, now + 60)
    assert prefetch.ahead() >= 0.9 * 10_000 * HORIZON > patient.ahead()


def test_it_stalls_when_nothing_ends_for_long_and_then_begins_anew() -> None:
    prefetch = Prefetch(1)
    now = fed(prefetch, 10, 0.001, 50)
    assert not prefetch.is_stalled(now + STALLED_AFTER * 0.9)
    assert prefetch.is_stalled(now + STALLED_AFTER * 1.1)
    prefetch.reset()
    assert prefetch.target() == 1
    prefetch.record_idle(now + 10)
    assert not prefetch.is_stalled(now + 10)


@pytest.mark.parametrize("first", [900, 100])
def test_two_workers_come_to_hold_as_many_of_the_places_of_a_limit(first: int) -> None:
    """Whoever had them first: each gives up a part of what it holds where the limit is reached."""
    places, held, workers = 1000, [first, 1000 - first], [Prefetch(1), Prefetch(1)]
    for worker in workers:
        fed(worker, 100_000, 0.001, 50)
    for _ in range(300):
        for at, worker in enumerate(workers):
            room = places - held[1 - at]
            is_held_back = worker.target() > room
            held[at] = min(worker.target(), room)
            worker.share(held[at], is_held_back)
            assert worker.is_shared
    assert min(held) > 0.3 * places
    assert sum(held) > 0.8 * places


def test_few_places_are_not_shared() -> None:
    prefetch = Prefetch(4)
    fed(prefetch, 100_000, 0.001, 50)
    for _ in range(10):
        prefetch.share(100, True)
    assert prefetch.ahead() == SHARED_FROM


def test_once_no_limit_is_reached_it_brings_as_many_ahead_as_before() -> None:
    prefetch = Prefetch(1)
    fed(prefetch, 100_000, 0.001, 50)
    prefetch.share(500, True)
    assert prefetch.ahead() < 500
    for _ in range(500):
        prefetch.share(prefetch.target(), False)
    assert (prefetch.ahead(), prefetch.is_shared) == (MOST_AHEAD, False)
