"""Builds the keeper's watch, which sends alerts, from the app and its settings."""

from collections.abc import Iterator

from tarry.alert.alert_sender import AlertSender
from tarry.alert.alert_settings import AlertSettings
from tarry.alert.monitor import Monitor, MonitoredApp
from tarry.alert.storage import FileStorage
from tarry.app import App
from tarry.config.config import Keep
from tarry.push.endpoint.recipient import Recipient
from tarry.store.rules.base import Diagnostic, Store
from tarry.store.shards.identity import StoreMemory
from tarry.store.shards.shard import public_url


def check_recipients(app: App) -> Iterator[Diagnostic]:
    """Checks for each recipient of alerts whether it can be reached; ConfigError."""
    terms = AlertSettings.of(app.config)
    of_tasks = [Recipient.parse(text) for endpoint in app.http.endpoints.values() for text in endpoint.alert]
    return AlertSender(terms, app.config).check([*terms.to, *of_tasks])


def create_watch(app: App, store: Store) -> Monitor:
    """The watch for the keeper's process. store: the keeper's."""
    config = app.config
    # Queues without settings of their own keep dead jobs for the default time.
    kept = {Keep().dead, *(queue.keep.dead for queue in config.queues.values())}
    urls = [app.store_url] if isinstance(app.store_url, str) else app.store_url
    pid_file, shown = config.master.pid_file, ", ".join(map(public_url, urls))
    # A second one of its own would double the connections; but the keeper must not wait for the watch.
    connect = (lambda: (store, False)) if store.is_pooled else app.connection
    watched = MonitoredApp(shown, connect, lambda: app.http.endpoints, lambda: kept, StoreMemory.beside(pid_file))
    terms = AlertSettings.of(config)
    return Monitor(
        watched, terms, AlertSender(terms, config), FileStorage(pid_file.with_name(f"{pid_file.name}.alerts"))
    )
