"""A plugin for Litestar: opens and closes the app with the server, and provides it to handlers."""

from litestar.config.app import AppConfig
from litestar.di import Provide
from litestar.plugins import InitPlugin

from tarry.app import App
from tarry.web import lifespan


class TarryPlugin(InitPlugin):
    """`Litestar(plugins=[TarryPlugin(jobs)])`: a handler with an argument `jobs: App` gets the app.

    worker: see `lifespan`. dependency: the name of that argument.
    """

    def __init__(self, app: App, *, worker: bool = False, dependency: str = "jobs") -> None:
        self._app, self._worker, self._dependency = app, worker, dependency

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Called by Litestar."""
        app_config.lifespan.append(lifespan(self._app, worker=self._worker))
        app_config.dependencies[self._dependency] = Provide(lambda: self._app, sync_to_thread=False)
        return app_config
