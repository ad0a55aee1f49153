"""The modules that an app's tasks are in: `include`, `imports`, `autodiscover_tasks`."""

import importlib
import importlib.util
from collections.abc import Callable, Iterable
from typing import Any

from tarry.compat.celery import signals

ModuleNames = Callable[[], Iterable[str]]


def import_tasks(app: Any, discover: list[ModuleNames]) -> None:
    """Imports them; each of `discover` once, and it is taken out."""
    for name in (*_names(app.conf.include), *_names(app.conf.imports)):
        importlib.import_module(name)
    while discover:
        for name in discover.pop(0)():
            importlib.import_module(name)
    signals.import_modules.send(app)


def find_related(packages: Any, related_name: str | None) -> list[str]:
    """`PACKAGE.tasks` of those packages that have one; without packages, of Django's apps."""
    found = packages() if callable(packages) else packages
    if found is None:
        # Without packages, the app is one of Django's.
        found = [config.name for config in _django_apps().get_app_configs()]
    found = [found] if isinstance(found, str) else found
    names = [f"{package}.{related_name}" if related_name else package for package in found]
    return [name for name in names if importlib.util.find_spec(name) is not None]


def _django_apps() -> Any:
    apps: Any = importlib.import_module("django.apps").apps
    if not apps.ready:
        # Celery's worker does so, too: its app is imported before Django is set up.
        importlib.import_module("django").setup()
    return apps


def _names(given: Any) -> Iterable[str]:
    return [given] if isinstance(given, str) else given or ()
