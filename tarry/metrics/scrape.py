"""All figures, for one reader."""

from collections.abc import Callable, Iterator
from importlib.metadata import version

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder, generate_latest

from tarry.metrics.families import info
from tarry.metrics.history_families import history_families
from tarry.metrics.host_families import HostFigures, host_families
from tarry.metrics.process_figures import OwnFigures
from tarry.metrics.queue_families import (
    circuit_families,
    host_count_families,
    queue_families,
    schedule_families,
    store_families,
)
from tarry.metrics.store_figures import StoreReading


def _all(queue: str) -> bool:
    return True


class Scrape(CollectorRegistry):
    """What one reader gets. host: None if this process has no master. allows: whether the reader may see that queue,
    or `*`, all of them. of_python: see `OwnFigures.collect`."""

    def __init__(
        self,
        own: OwnFigures,
        reading: StoreReading,
        host: HostFigures | None = None,
        *,
        allows: Callable[[str], bool] = _all,
        of_python: bool = True,
    ) -> None:
        super().__init__()
        self._own, self._reading, self._host = own, reading, host
        self._allows, self._of_python = allows, of_python

    def collect(self) -> Iterator[Metric]:
        """All figures, as families of samples."""
        yield info("tarry_build_info", {"version": version("tarry")})
        # What processes do, and where stores are, is nothing for those who may see only some queues.
        sees_all = self._allows("*")
        if sees_all:
            yield from self._own.collect(self._of_python)
        if self._host is not None and sees_all:
            yield from host_families(self._host)
        yield from store_families(self._reading, shows_urls=sees_all)
        # While the store is away, its last figures would look as if they were true.
        if (figures := self._reading.figures) is not None:
            yield from queue_families(figures.look, self._allows)
            yield from history_families(figures.totals, self._allows)
            yield from circuit_families(figures, self._allows)
            if sees_all:
                yield from host_count_families(figures.look)
                yield from schedule_families(figures)

    def encode(self, accept: str) -> tuple[bytes, str]:
        """The figures as text, and its media type. accept: the header of the request; OpenMetrics where it asks for
        it."""
        encode, media_type = choose_encoder(accept)
        return encode(self), media_type

    def text(self) -> bytes:
        """The figures as node_exporter reads them from a file."""
        return generate_latest(self)
