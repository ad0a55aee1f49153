"""What ties an app to the tools that watch over it. Each is an extra: `pip install "tarry[otel]"`."""

from collections.abc import Mapping
from weakref import WeakSet

from tarry.app import App
from tarry.errors import ConfigError


def travel(headers: dict[str, str], more: Mapping[str, str]) -> None:
    """Adds a tool's own headers to a job's. Baggage is everybody's, so it is added to what is there."""
    for name, value in more.items():
        there = headers.get(name) if name == "baggage" else None
        headers[name] = f"{there},{value}" if there else value


def once(apps: "WeakSet[App]", app: App) -> None:
    """ConfigError for an app that is in the set already: all would be told twice."""
    if app in apps:
        raise ConfigError("this app is instrumented already: call instrument(app) once")
    apps.add(app)
