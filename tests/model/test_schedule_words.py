"""When a schedule ticks, in words."""

import pytest

from tarry.model.schedules.words import describe


@pytest.mark.parametrize(
    ("expression", "zone", "words"),
    [
        ("0 7 * * 1-5", "Europe/Paris", "at 07:00 on weekdays, Paris time"),
        ("30 9,18 * * *", "UTC", "at 09:30, 18:30 every day, UTC"),
        ("*/5 * * * *", "UTC", "every 5 minutes, UTC"),
        ("* * * * *", "UTC", "every minute, UTC"),
        ("*/10 * * * * *", "UTC", "every 10 seconds, UTC"),
        ("0 * * * *", "UTC", "every hour, UTC"),
        ("15 * * * mon", "UTC", "every hour at minute 15 on Mondays, UTC"),
        ("5 */6 * * *", "UTC", "every 6 hours at minute 5, UTC"),
        ("0 0 L * *", "America/New_York", "at 00:00 on the last day of the month, New York time"),
        ("0 0 1,15 jan,7 *", "UTC", "at 00:00 on day 1, 15 of the month in the months 1, 7, UTC"),
        ("0 12 * * sat,sun", "UTC", "at 12:00 at weekends, UTC"),
        ("0 12 * * 1,4,7", "UTC", "at 12:00 on Mondays on Thursdays on Sundays, UTC"),
        ("@daily", "UTC", "at 00:00 every day, UTC"),
        ("@every 90s", "Europe/Paris", "every 90s"),
        ("@once 2026-12-31T07:00:00+00:00", "UTC", "once, at 2026-12-31 07:00:00 UTC"),
        ("1-5 7 * * *", "UTC", "by the expression 1-5 7 * * *, UTC"),
        ("0 7 1 * 1", "UTC", "by the expression 0 7 1 * 1, UTC"),
        ("0 7 * * mon#1", "UTC", "by the expression 0 7 * * mon#1, UTC"),
        ("*/7 * * * *", "UTC", "by the expression */7 * * * *, UTC"),
        ("*/40 * * * * *", "UTC", "by the expression */40 * * * * *, UTC"),
        ("*/90 * * * *", "UTC", "by the expression */90 * * * *, UTC"),
        ("5 */5 * * *", "UTC", "by the expression 5 */5 * * *, UTC"),
        ("5 */24 * * *", "UTC", "by the expression 5 */24 * * *, UTC"),
        ("*/01 * * * *", "UTC", "every minute, UTC"),
        ("%(x)s", "%(y)s", "by the expression %(x)s, %(y)s time"),
    ],
)
def test_words(expression: str, zone: str, words: str) -> None:
    assert describe(expression, zone) == words
