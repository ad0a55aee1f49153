"""Stores: whether each answers, how fast, what to change, and how large the queues are."""

from collections.abc import Sequence

from msgspec import Struct

from tarry.door.console.act import ConsoleAct
from tarry.door.console.page import ConsolePage, PageData, console_page
from tarry.door.http.hosts import list_stores
from tarry.door.http.method import ApiCall
from tarry.store.base import Tally


class QueueSize(Struct, frozen=True):
    """How much room the jobs of a queue take. finished: how many of them are kept for their results."""

    queue: str
    jobs: int
    finished: int
    bytes: int


@console_page("/stores", "stores.html")
def stores_page(call: ApiCall) -> PageData:
    """The stores, and what is in them."""
    stores = list_stores.handler(call).stores
    # The counts read the store; where none answers, its page says so all the same.
    is_away = all(store.trouble for store in stores)
    counts = [] if is_away else [one for one in call.service.look.read().counts if call.allows(one.queue)]
    sizes = queue_sizes(counts)
    return {"stores": stores, "sizes": sizes, "jobs": sum(one.jobs for one in sizes), "bytes": _total(sizes)}


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


def _total(sizes: Sequence[QueueSize]) -> int:
    return sum(one.bytes for one in sizes)


PAGES: tuple[ConsolePage, ...] = (stores_page,)
ACTS: tuple[ConsoleAct, ...] = ()
