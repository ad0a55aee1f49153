"""`python -m tests.django.suite.run MODULE ...`: runs cases of the suite by Django's own runner."""

import os
import sys

import django
from django.conf import settings
from django.test.utils import get_runner


def main(modules: list[str]) -> int:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.django.project.settings"
    django.setup()
    runner = get_runner(settings)(verbosity=1, interactive=False)
    return int(runner.run_tests([f"tests.django.suite.{name}" for name in modules]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
