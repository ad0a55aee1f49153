import math

from tarry.runtime.reload import FREE_RELOADS, MAX_DELAY, ROW_GAP, ReloadThrottle


def test_a_change_is_followed_at_once_and_once() -> None:
    pace = ReloadThrottle()
    assert not pace.take_due(10.0)
    assert pace.note_change(10.0) == 0.0
    assert pace.take_due(10.0)
    assert not pace.take_due(11.0)
    assert pace.due_at == math.inf


def test_where_each_brings_the_next_they_come_ever_later() -> None:
    pace, now, pauses = ReloadThrottle(), 100.0, list[float]()
    for _ in range(FREE_RELOADS + 8):
        pauses.append(pace.note_change(now))
        assert not pace.take_due(pace.due_at - 0.001)
        now = pace.due_at + 1.0
        assert pace.take_due(now - 0.5)
    assert pauses == [0.0] * FREE_RELOADS + [2.0, 4.0, 8.0, 16.0, 32.0, MAX_DELAY, MAX_DELAY, MAX_DELAY]
    assert pace.note_change(now + ROW_GAP) == 0.0


def test_what_changes_while_one_is_due_is_in_it() -> None:
    pace = ReloadThrottle()
    for _ in range(FREE_RELOADS):
        pace.note_change(0.0)
        pace.take_due(0.0)
    assert [pace.note_change(1.0), pace.note_change(2.0), pace.note_change(4.0)] == [2.0, 1.0, 0.0]
    assert pace.take_due(4.0)
