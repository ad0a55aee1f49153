"""The commands of README.md, in a directory of their own; the jobs run here, without a master."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import django
django.setup()
from django.core.management import call_command
from django.test import Client
from tarry.django import tarry_app
from examples.django_shop.orders.models import Order
call_command("migrate", verbosity=0)
call_command("stock", "tea", "2")
buy = Client(headers={"host": "localhost"}).post
print([buy("/buy", {"item": "tea", "email": f"{who}@example.org"}).status_code for who in ("ann", "bob", "cy")])
print(tarry_app().drain(timeout=30), "jobs,", Order.objects.filter(is_confirmed=True).count(), "confirmed")
"""


def run(place: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environ = {name: text for name, text in os.environ.items() if not name.startswith("TARRY_")}
    environ |= {"PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "examples.django_shop.settings"}
    ran = subprocess.run(
        [sys.executable, *words], cwd=place, env=environ, capture_output=True, text=True, timeout=250, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


def test_two_are_sold_and_the_third_is_refused(tmp_path: Path) -> None:
    lines = run(tmp_path, "-c", SCRIPT).stdout.splitlines()
    assert "[201, 201, 409]" in lines
    assert "2 jobs, 2 confirmed" in lines


def test_its_own_tests_pass(tmp_path: Path) -> None:
    ran = run(tmp_path, "-m", "examples.django_shop", "test", "examples.django_shop")
    assert "Ran 3 tests" in ran.stderr
