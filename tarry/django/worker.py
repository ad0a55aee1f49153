"""The app that workers run: `tarry -a tarry.django.worker:app start`, as `manage.py tarry start` does.

`app` is that of the backend "default"; another alias of TASKS is its own name: `tarry.django.worker:reports`.
"""

from typing import TYPE_CHECKING, Any

import django
from django.apps import apps

from tarry.errors import AppError

if TYPE_CHECKING:
    from tarry.django.app import DjangoApp


def worker_app(alias: str) -> "DjangoApp":
    """The App of the backend with this alias, with the tasks that are known; AppError if it is none of tarry's."""
    # Only now: Django must be set up before a backend is made.
    from tarry.django import compat  # noqa: PLC0415
    from tarry.django.backend import TarryBackend  # noqa: PLC0415

    if alias not in compat.task_backends.settings:
        raise AppError(f"TASKS has no {alias!r}; it has {', '.join(sorted(compat.task_backends.settings))}")
    backend = compat.task_backends[alias]
    if not isinstance(backend, TarryBackend):
        raise AppError(f"TASKS[{alias!r}] is {type(backend).__name__}: give it BACKEND = tarry.django.Backend")
    app = backend.app
    app.discover()
    return app


def __getattr__(name: str) -> Any:
    """The App of the backend whose alias is `name`; of "default" for `app`."""
    if name.startswith("__"):
        raise AttributeError(name)
    if not apps.ready:
        django.setup()
    return worker_app("default" if name == "app" else name)
