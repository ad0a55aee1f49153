"""Settings of the project in which the suite runs. SUITE: JSON with `database`, `options` and `python_tasks`."""

import contextlib
import importlib.util
import json
import os
from typing import Any

with contextlib.suppress(ImportError):
    import pymysql

    pymysql.install_as_MySQLdb()

_given: dict[str, Any] = json.loads(os.environ.get("SUITE", "{}"))

SECRET_KEY = "only for tests"
USE_TZ = True
ROOT_URLCONF = "tests.django.project.urls"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    *(["django_tasks"] if importlib.util.find_spec("django.tasks") is None else []),
    "tarry.django",
    "tests.django.project",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
_MEMORY = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
DATABASES = {"default": _given.get("database", _MEMORY), "second": _MEMORY}
TASKS = {
    "default": {
        "BACKEND": "tarry.django.Backend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"retries": 0, **_given.get("options", {})},
    },
    "other": {"BACKEND": "tarry.django.Backend", "QUEUES": [], "OPTIONS": {"store": "memory://"}},
}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STATIC_URL = "static/"
