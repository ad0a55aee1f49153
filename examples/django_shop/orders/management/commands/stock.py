"""`stock NAME NUMBER`: so many of it may be sold."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from examples.django_shop.orders.models import Item


class Command(BaseCommand):
    """See above."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name")
        parser.add_argument("number", type=int)

    def handle(self, *args: Any, **options: Any) -> None:
        Item.objects.update_or_create(name=options["name"], defaults={"stock": options["number"]})
