"""Which app is the current one, and the tasks that are for every app."""

from typing import Any, TypeVar

from tarry.errors import ConfigError
from tarry.tasks.running import current, require_current

T = TypeVar("T")

NO_APP = "there is no app yet: import the module that makes Celery(...) first, as a package's __init__.py often does"

_apps: list[Any] = []
_shared: list[Any] = []


def current_app() -> Any:
    """The app that was made last; ConfigError if there is none."""
    if not _apps:
        raise ConfigError(NO_APP)
    return _apps[-1]


def task_class(default: Any) -> Any:
    """The class of the tasks of the current app; the default if there is no app yet."""
    return _apps[-1].Task if _apps else default


def running_app() -> Any:
    """The app whose worker runs this code."""
    running = require_current("running_app()")
    return next((app for app in _apps if app.tasks.get(running.task.name) is running.task), None) or current_app()


def current_task() -> Any:
    """The task that runs this code, also in an app that is not the current one; None: none."""
    running = current.get()
    if running is None:
        return None
    return next((task for app in _apps if (task := app.find_celery_task(running.task.name))), None)


def add_app(app: Any, current: bool) -> None:
    """Gives it the tasks that are for every app; makes it the current app if it is to be."""
    if app not in _apps:
        _apps.insert(len(_apps) if current else 0, app)
    elif current:
        _apps.remove(app)
        _apps.append(app)
    for task in list(_shared):
        app.adopt_shared(task)


def share(task: T) -> T:
    """Adds the task to each app, those to come as well, and returns it."""
    _shared.append(task)
    for app in list(_apps):
        app.adopt_shared(task)
    return task


def configure_all(config: Any) -> None:
    """Gives all apps these settings: a task that one of them has may run in a worker of another."""
    for app in _apps:
        app.take_config(config)
