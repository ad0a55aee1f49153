"""The figures for Prometheus by the keeper: on a port of its own, and in a file."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tarry.app import App
from tarry.config.config import Config
from tarry.errors import ConfigError
from tarry.keeper.chores import Keeper
from tarry.platform import cpu_seconds
from tarry.process.host_heartbeat import pool_figures
from tarry.process.parent_board import ParentBoard
from tarry.runtime.board.layout import GONE, QUITTING, READY, STOPPING
from tarry.runtime.role import KEEPER, ChildContext

if TYPE_CHECKING:
    from tarry.metrics.host_families import HostFigures
    from tarry.metrics.listener import MetricsListener
    from tarry.metrics.textfile import Textfile


def check_metrics(config: Config) -> None:
    """ConfigError if the figures cannot be shown with these settings."""
    if not config.metrics.is_on:
        return
    with _needing_the_extra():
        import tarry.metrics.scrape  # noqa: F401, PLC0415 - most have no such section
    path = config.metrics.textfile
    if path is not None and not path.parent.is_dir():
        raise ConfigError(f"{config.place('metrics', 'textfile')}: {path.parent} is no directory: make it")


class KeeperMetrics:
    """What `[metrics]` asks of the keeper. Nothing is imported or read unless it does."""

    def __init__(self, child: ChildContext, app: App, keeper: Keeper) -> None:
        self._board = ParentBoard(app.config)
        self._listener: MetricsListener | None = None
        self._textfile: Textfile | None = None
        if app.config.metrics.is_on:
            self._start(child, app, keeper)

    def _start(self, child: ChildContext, app: App, keeper: Keeper) -> None:
        from tarry.metrics.listener import MetricsListener  # noqa: PLC0415
        from tarry.metrics.process_figures import OwnFigures  # noqa: PLC0415
        from tarry.metrics.scrape import Scrape  # noqa: PLC0415
        from tarry.metrics.store_figures import FiguresReader  # noqa: PLC0415
        from tarry.metrics.store_overview import OverviewStore  # noqa: PLC0415
        from tarry.metrics.textfile import Textfile  # noqa: PLC0415

        # Over a connection of its own: a scrape of a large store must not delay the chores.
        self._store = OverviewStore(app.connection)
        reader, own, host = FiguresReader(app, self._store), OwnFigures(), HostReader(app.config)
        own.show("tarry_keeper_chores_total", lambda: keeper.chores_done, "done")
        own.show("tarry_keeper_chores_total", lambda: keeper.chores_failed, "failed")

        def scrape(of_python: bool = True) -> Scrape:
            return Scrape(own, reader.read(), host.read(), of_python=of_python)

        settings = app.config.metrics
        if sockets := child.sockets.get("metrics"):
            self._listener = MetricsListener(lambda accept: scrape().encode(accept), sockets, settings.host_names)
            self._listener.start()
        if settings.textfile is not None:
            # node_exporter has figures of the same names about itself.
            self._textfile = Textfile(settings.textfile, settings.every, lambda: scrape(of_python=False).text())
            self._textfile.start()

    def close(self) -> None:
        """At the keeper's end."""
        if self._listener is not None:
            self._listener.close()
        if self._textfile is not None:
            board = self._board.read()
            # Else another keeper of this master goes on writing it.
            self._textfile.close(removes=board is None or board.state in (STOPPING, QUITTING))
        if self._listener is not None or self._textfile is not None:
            self._store.close()


class HostReader:
    """The figures of the master of this process, from its scoreboard."""

    def __init__(self, config: Config) -> None:
        self._board, self._pools = ParentBoard(config), config.pools

    def read(self) -> "HostFigures | None":
        """None: the scoreboard cannot be read."""
        from tarry.metrics.host_families import HostFigures, ProcessFigures  # noqa: PLC0415 - needs an extra

        board = self._board.read()
        if board is None:
            return None
        living = [child for child in board.children if child.boot != GONE and child.pid]
        return HostFigures(
            board.started,
            any(child.role == KEEPER and child.boot == READY for child in living),
            bool(board.notice.trouble),
            pool_figures(board, self._pools),
            [ProcessFigures(child.name, cpu_seconds(child.pid), child.rss, child.started) for child in living],
        )


@contextlib.contextmanager
def _needing_the_extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith("tarry."):
            raise ConfigError(f"another tarry is installed than the one that runs: tarry upgrade ({error})") from None
        raise ConfigError(f"[metrics] needs its extra: pip install 'tarry[metrics]' ({error})") from None
