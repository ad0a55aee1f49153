"""The entry of INSTALLED_APPS."""

import contextlib
import importlib
from typing import Any

from django.apps import AppConfig
from django.core.signals import setting_changed
from django.db.models.signals import post_migrate


class TarryConfig(AppConfig):
    """`"tarry.django"`: `manage.py tarry`, the pages of the admin, and the tables of the store at `migrate`."""

    name = "tarry.django"
    label = "tarry"
    verbose_name = "Tarry"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Called by Django once all apps are loaded."""
        # Also where no module has loaded a task yet, the check of the backends is to be registered.
        importlib.import_module("tarry.django.compat")
        post_migrate.connect(_prepare_stores, dispatch_uid="tarry.django")
        setting_changed.connect(_forget_apps, dispatch_uid="tarry.django")


def _prepare_stores(using: str, **kwargs: Any) -> None:
    """Makes the tables of stores in this database, so that no enqueue has to do it within a transaction."""
    from tarry.django import compat, database  # noqa: PLC0415 - models may not be loaded at the import of this module
    from tarry.django.backend import TarryBackend  # noqa: PLC0415

    for alias in compat.task_backends.settings:
        backend = None
        with contextlib.suppress(compat.InvalidTaskBackend):
            backend = compat.task_backends[alias]
        is_here = isinstance(backend, TarryBackend) and not backend.options.get("store")
        if backend is not None and is_here and database.database_of(backend.options) == using:
            _ = backend.app.client


def _forget_apps(setting: str, **kwargs: Any) -> None:
    """Called where tests change the settings."""
    if setting in ("TASKS", "DATABASES"):
        from tarry.django.app import close_apps  # noqa: PLC0415 - as above

        close_apps()
