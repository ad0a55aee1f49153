"""Methods about the stores: whether each answers, and how it is."""

from msgspec import Struct

from tarry.metrics.store_health import StoreHealth
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import method, methods_of


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


@method("GET /v1/stores", Scope.READ, tag="hosts", command="store list")
def list_stores(call: MethodCall) -> StoreList:
    """Lists the stores: whether each answers, how fast, and what an operator should know of it.

    Takes a caller for all queues: they are for all of them."""
    call.check(EVERY_QUEUE)
    return StoreList([_store(one) for one in call.health()])


def _store(health: StoreHealth) -> StoreRecord:
    facts = [FactRecord(one.name, one.value, one.advice) for one in health.facts]
    return StoreRecord(health.url, health.trouble, health.latency, health.draining, facts)


METHODS = methods_of(__name__)
