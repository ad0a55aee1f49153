import math

from tarry.runtime.reload_throttle import FREE, IN_A_ROW, LONGEST, Pace


def test_a_change_is_followed_at_once_and_once() -> None:
    pace = Pace()
    assert not pace.take(10.0)
    assert pace.changed(10.0) == 0.0
    assert pace.take(10.0)
    assert not pace.take(11.0)
    assert pace.due == math.inf


def test_where_each_brings_the_next_they_come_ever_later() -> None:
    pace, now, pauses = Pace(), 100.0, list[float]()
    for _ in range(FREE + 8):
        pauses.append(pace.changed(now))
        assert not pace.take(pace.due - 0.001)
        now = pace.due + 1.0
        assert pace.take(now - 0.5)
    assert pauses == [0.0] * FREE + [2.0, 4.0, 8.0, 16.0, 32.0, LONGEST, LONGEST, LONGEST]
    assert pace.changed(now + IN_A_ROW) == 0.0


def test_what_changes_while_one_is_due_is_in_it() -> None:
    pace = Pace()
    for _ in range(FREE):
        pace.changed(0.0)
        pace.take(0.0)
    assert [pace.changed(1.0), pace.changed(2.0), pace.changed(4.0)] == [2.0, 1.0, 0.0]
    assert pace.take(4.0)
