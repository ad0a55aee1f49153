"""`python -m examples.django_shop COMMAND`: what `manage.py` is elsewhere. See README.md."""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_shop.settings")
execute_from_command_line(["python -m examples.django_shop", *sys.argv[1:]])
