"""A backend for the tasks of Django: `TASKS = {"default": {"BACKEND": "tarry.django.Backend"}}`.

For `django.tasks` (Django 6) and `django-tasks` (Django 5.2). With "tarry.django" in INSTALLED_APPS there are also
`manage.py tarry` and the pages of the admin. Nothing else in tarry imports Django.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tarry.django.backend import TarryBackend as Backend
    from tarry.django.backend import tarry_app
    from tarry.django.compat import TaskResultDoesNotExist
    from tarry.django.django_task import DjangoTask, task

__all__ = ["Backend", "DjangoTask", "TaskResultDoesNotExist", "tarry_app", "task"]

_PLACES = {
    "Backend": ("tarry.django.backend", "TarryBackend"),
    "TaskResultDoesNotExist": ("tarry.django.compat", "TaskResultDoesNotExist"),
    "tarry_app": ("tarry.django.backend", "tarry_app"),
    "DjangoTask": ("tarry.django.django_task", "DjangoTask"),
    "task": ("tarry.django.django_task", "task"),
}
"""The module and the name of each. Loaded at the first use: Django imports this package before it is set up."""


def __getattr__(name: str) -> Any:
    """Loads what is in `__all__`."""
    if name not in _PLACES:
        raise AttributeError(f"module 'tarry.django' has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(importlib.import_module(module), attribute)
