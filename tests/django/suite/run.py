"""`python -m tests.django.suite.run MODULE ...`: runs cases of the suite by Django's own runner."""

import os
import sys
from collections.abc import Iterable
from typing import Any

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.commands import flush
from django.test.utils import get_runner


def empty_by_delete() -> None:
    """On PostgreSQL, Django empties all tables after each case by TRUNCATE, which makes their files anew: that takes
    far longer than to delete some rows."""
    try:
        from django.db.backends.postgresql.operations import DatabaseOperations  # noqa: PLC0415 -- may have no driver
    except ImproperlyConfigured:
        return

    def sql_flush(self: Any, style: object, tables: Iterable[str], **options: object) -> list[str]:
        return [f"DELETE FROM {self.quote_name(table)};" for table in tables]

    DatabaseOperations.sql_flush = sql_flush


CONSTANT = {"django_content_type", "auth_permission"}


def keep_what_is_constant() -> None:
    """After each case Django empties all tables, and makes each permission of each model anew, as after `migrate`: a
    third of the suite's CPU, to have the rows that were there before. No case adds one."""

    def sql_flush(style: object, connection: Any, **options: object) -> list[str]:
        tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
        sql: list[str] = connection.ops.sql_flush(style, [name for name in tables if name not in CONSTANT], **options)
        return sql

    flush.sql_flush = sql_flush
    flush.emit_post_migrate_signal = lambda *args, **options: None


def main(modules: list[str]) -> int:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.django.project.settings"
    django.setup()
    empty_by_delete()
    keep_what_is_constant()
    runner = get_runner(settings)(verbosity=1, interactive=False)
    return int(runner.run_tests([f"tests.django.suite.{name}" for name in modules]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
