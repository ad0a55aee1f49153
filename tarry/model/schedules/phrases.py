"""What is said of when a schedule ticks, part by part."""

from collections.abc import Mapping

SENTENCES: Mapping[str, str] = {
    "at": "at %(times)s",
    "second": "every second",
    "seconds": "every %(number)s seconds",
    "minute": "every minute",
    "minutes": "every %(number)s minutes",
    "hour": "every hour",
    "hour_at": "every hour at minute %(minute)s",
    "hours": "every %(number)s hours at minute %(minute)s",
    "every": "every %(time)s",
    "once": "once, at %(time)s",
    "cron": "by the expression %(cron)s",
    "daily": "every day",
    "weekdays": "on weekdays",
    "weekend": "at weekends",
    "mon": "on Mondays",
    "tue": "on Tuesdays",
    "wed": "on Wednesdays",
    "thu": "on Thursdays",
    "fri": "on Fridays",
    "sat": "on Saturdays",
    "sun": "on Sundays",
    "day": "on day %(days)s of the month",
    "last": "on the last day of the month",
    "months": "in the months %(months)s",
    "zone": "%(city)s time",
    "utc": "UTC",
}
"""What each part says, by its name; in English."""
ZONES = ("zone", "utc")
"""Parts with a comma before them."""
