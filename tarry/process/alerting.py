"""The watch that tells people, put together from the app and its settings."""

from collections.abc import Iterator

from tarry.alert.monitor import App as Watched
from tarry.alert.monitor import Watch
from tarry.alert.sender import Reach
from tarry.alert.settings import Terms
from tarry.alert.storage import FileMemory
from tarry.app import App
from tarry.config import Keep
from tarry.push.endpoint.recipient import Recipient
from tarry.store.base import Fact
from tarry.store.shards.shard import shown


def reached(app: App) -> Iterator[Fact]:
    """For each who is to be told of anything, whether that can be; ConfigError."""
    terms = Terms.of(app.config)
    of_tasks = [Recipient.parse(text) for endpoint in app.http.endpoints.values() for text in endpoint.alert]
    return Reach(terms, app.config).check([*terms.to, *of_tasks])


def watch_of(app: App) -> Watch:
    """For the keeper's process."""
    config = app.config
    kept = {Keep().dead, *(queue.keep.dead for queue in config.queues.values())}
    urls = [app.store_url] if isinstance(app.store_url, str) else app.store_url
    watched = Watched(", ".join(map(shown, urls)), app.connection, lambda: app.http.endpoints, lambda: kept)
    terms = Terms.of(config)
    pid_file = config.master.pid_file
    return Watch(watched, terms, Reach(terms, config), FileMemory(pid_file.with_name(f"{pid_file.name}.alerts")))
