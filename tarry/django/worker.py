"""The app that workers run: `tarry -a tarry.django.worker:app start`, as `manage.py tarry start` does.

`app` is that of the backend "default"; another alias of TASKS is its own name: `tarry.django.worker:reports`.
"""

from typing import TYPE_CHECKING, Any

import django
from django.apps import apps

if TYPE_CHECKING:
    from tarry.django.app import DjangoApp


def worker_app(alias: str) -> "DjangoApp":
    """The App of the backend with this alias, with the tasks that are known; AppError if it is none of tarry's."""
    # Only now: Django must be set up before a backend is made.
    from tarry.django.backend import tarry_app  # noqa: PLC0415

    app = tarry_app(alias)
    app.discover()
    return app


def __getattr__(name: str) -> Any:
    """The App of the backend whose alias is `name`; of "default" for `app`."""
    if name.startswith("__"):
        raise AttributeError(name)
    if not apps.ready:
        django.setup()
    return worker_app("default" if name == "app" else name)
