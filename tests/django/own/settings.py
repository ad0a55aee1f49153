"""Settings for Django's own tests."""

SECRET_KEY = "only for tests"
USE_TZ = True
INSTALLED_APPS = ["tarry.django", "tasks"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
TASKS = {"default": {"BACKEND": "tests.django.own.backends.KeepingBackend", "QUEUES": []}}
