"""Which app is the current one, and the tasks that are for every app."""

from typing import Any

from tarry.errors import ConfigError

_apps: list[Any] = []
_shared: list[Any] = []


def current_app() -> Any:
    """The app that was made last; ConfigError if there is none."""
    if not _apps:
        raise ConfigError("there is no app yet: make one, Celery(...), and import its module first")
    return _apps[-1]


def add_app(app: Any, current: bool) -> None:
    """Gives it the tasks of `shared_task`; makes it the current app if it is to be."""
    _apps.insert(len(_apps) if current else 0, app)
    for task in list(_shared):
        app.adopt(task)


def share(task: Any) -> Any:
    """Adds the task to each app, those to come as well, and returns it."""
    _shared.append(task)
    for app in list(_apps):
        app.adopt(task)
    return task
