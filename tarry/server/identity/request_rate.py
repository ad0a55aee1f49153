"""How many requests a caller may send in a period; past it they are told when to come again."""

from collections import OrderedDict

from tarry.errors import RateExceeded
from tarry.model.duration import SECOND
from tarry.model.limit import Level, Limit, parse_limit

MOST_ADDRESSES = 10_000
"""Addresses that are remembered; beyond it the one that was not seen for longest is forgotten."""


class RequestRate:
    """The rate of one caller, in one process. rate: such as "100/s"; None: any number."""

    def __init__(self, who: str, rate: str | None) -> None:
        self._who, self._limit, self._level = who, parse_limit(None, rate), Level()

    def count(self, now: int) -> None:
        """Counts one request at `now` (microseconds of any clock); RateExceeded past the rate."""
        limit = self._limit
        if limit is None:
            return
        if not self._level.room(limit, now):
            raise RateExceeded(f"{self._who} may send {limit}", self._retry_after(limit, now))
        # A request is over as soon as it is counted: only the rate matters.
        self._level = self._level.started(limit, 1, now).ended(1)

    def _retry_after(self, limit: Limit, now: int) -> float:
        again = self._level.again(limit, now)
        return 1.0 if again is None else (again - now) / SECOND


class AddressRates:
    """The rates of all client addresses, in one process."""

    def __init__(self, rate: str | None) -> None:
        self._rate = rate
        self._rates: OrderedDict[str, RequestRate] = OrderedDict()

    def count(self, address: str, now: int) -> None:
        """The same, of one address. Unix sockets have none, and no such bound."""
        if self._rate is None or not address:
            return
        rate = self._rates.get(address)
        if rate is None:
            rate = self._rates[address] = RequestRate(f"one address ({address})", self._rate)
            if len(self._rates) > MOST_ADDRESSES:
                self._rates.popitem(last=False)
        self._rates.move_to_end(address)
        rate.count(now)
