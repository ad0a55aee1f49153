"""The settings: what Django needs, and one backend for its tasks."""

from pathlib import Path

SECRET_KEY = "of an example: make your own"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "examples.django_shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path.cwd() / "shop.db"}}
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
INSTALLED_APPS = ["examples.django_shop.orders", "tarry.django"]

# The jobs are in the database above: an enqueue is part of the transaction around it.
TASKS = {"default": {"BACKEND": "tarry.django.Backend", "QUEUES": ["default"]}}
