"""The stores as the server sees them."""

from msgspec import Struct

from tarry.operate.access import Scope
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import methods_of
from tarry.server.http.method import ApiCall, api_method
from tarry.server.store_health import StoreHealth

_AWAY_FOR = 1.0
"""Seconds for which it is told that a store is away before it is asked again."""


class FactRecord(Struct, frozen=True):
    """What an operator should know of a store."""

    name: str
    value: str
    advice: str
    """What to change; empty: nothing."""


class StoreRecord(Struct, frozen=True):
    """A store, as it answered within the last seconds."""

    url: str
    """Without passwords."""
    trouble: str
    """Why it does not answer; empty: it does."""
    latency: float | None
    """Seconds that the smallest read took; null: it did not answer."""
    draining: bool
    """It gets no new jobs."""
    facts: list[FactRecord]


class StoreList(Struct, frozen=True):
    """The stores; several if they are used as one."""

    stores: list[StoreRecord]


@api_method("GET /v1/stores", Scope.READ, tag="hosts")
def list_stores(call: ApiCall) -> StoreList:
    """Lists the stores: whether each answers, how fast, and what an operator should know of it.

    Takes a caller for all queues: they are for all of them."""
    call.check(EVERY_QUEUE)
    found = call.service.health.read()
    # That a store is back is seen sooner.
    found = call.service.health.read(_AWAY_FOR) if any(one.trouble for one in found) else found
    return StoreList([_store(one) for one in found])


def _store(health: StoreHealth) -> StoreRecord:
    facts = [FactRecord(one.name, one.value, one.advice) for one in health.facts]
    return StoreRecord(health.url, health.trouble, health.latency, health.draining, facts)


METHODS = methods_of(__name__)
