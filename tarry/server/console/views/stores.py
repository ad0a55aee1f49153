"""Stores: whether each answers, how fast, what to change, and how large the queues are."""

from collections.abc import Sequence

from msgspec import Struct

from tarry.errors import StoreError
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.stores import list_stores
from tarry.server.console.act import ConsoleAct
from tarry.server.console.page import ConsolePage, PageData, console_page
from tarry.server.http.method import ApiCall
from tarry.store.rules.base import Tally


class QueueSize(Struct, frozen=True):
    """How much room the jobs of a queue take. finished: how many of them are kept for their results."""

    queue: str
    jobs: int
    finished: int
    bytes: int


@console_page("/stores", "stores.html")
def stores_page(call: ApiCall) -> PageData:
    """The stores, and what is in them."""
    call.check(EVERY_QUEUE)
    sizes = queue_sizes([one for one in _counts(call) if call.allows(one.queue)])
    return {
        "stores": list_stores.handler(call).stores,
        "sizes": sizes,
        "jobs": sum(one.jobs for one in sizes),
        "bytes": sum(one.bytes for one in sizes),
    }


def _counts(call: ApiCall) -> Sequence[Tally]:
    """How many jobs there are; none if no store answers."""
    try:
        return call.look().counts
    except StoreError:
        # The page is there to say that. What is known of the stores' health is from before.
        call.service.health.read(0)
        return ()


def queue_sizes(counts: Sequence[Tally]) -> list[QueueSize]:
    """The size of each queue, the largest first."""
    found: dict[str, QueueSize] = {}
    for tally in counts:
        so_far = found.get(tally.queue, QueueSize(tally.queue, 0, 0, 0))
        found[tally.queue] = QueueSize(
            tally.queue,
            so_far.jobs + tally.count,
            so_far.finished + (tally.count if tally.state.finished else 0),
            so_far.bytes + tally.bytes,
        )
    return sorted(found.values(), key=lambda one: (-one.bytes, one.queue))


PAGES: tuple[ConsolePage, ...] = (stores_page,)
ACTS: tuple[ConsoleAct, ...] = ()
