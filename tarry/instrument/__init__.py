"""Connects an app to monitoring tools. Each is an extra: `pip install "tarry[otel]"`."""

from collections.abc import Mapping
from weakref import WeakSet

from tarry.app import App
from tarry.errors import ConfigError


def add_headers(headers: dict[str, str], more: Mapping[str, str]) -> None:
    """Adds a tool's headers to those of a job."""
    # `baggage` is shared by all tools, so it is appended. The others belong to one tool, and the last one counts.
    for name, value in more.items():
        present = headers.get(name) if name == "baggage" else None
        headers[name] = f"{present},{value}" if present else value


def register_once(apps: "WeakSet[App]", app: App) -> None:
    """Adds the app to the set; ConfigError if it is there already."""
    # A second time, everything would be reported twice.
    if app in apps:
        raise ConfigError("this app is instrumented already: call instrument(app) once")
    apps.add(app)
