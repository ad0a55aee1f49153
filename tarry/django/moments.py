"""Times as Django has them."""

from datetime import UTC, datetime

from django.conf import settings
from django.utils import timezone

from tarry.model.duration import SECOND


def moment(microseconds: int) -> datetime | None:
    """The time, from microseconds since the epoch: aware if USE_TZ, else of the local time zone; None for 0."""
    if not microseconds:
        return None
    aware = datetime.fromtimestamp(microseconds / SECOND, UTC)
    return aware if settings.USE_TZ else timezone.make_naive(aware)


def aware(when: datetime | None) -> datetime | None:
    """A time of Django's with its time zone."""
    # Without USE_TZ Django's times are of the local time zone.
    return timezone.make_aware(when) if when is not None and timezone.is_naive(when) else when
