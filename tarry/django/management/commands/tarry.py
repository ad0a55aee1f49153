"""`manage.py tarry COMMAND`: tarry's own command line, for the app of a backend."""

import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand

from tarry.cli.main import main


class TarryCommand(BaseCommand):
    """Passes its arguments to tarry's command line."""

    help = "Runs tarry's command line for a backend of TASKS: manage.py tarry [--backend ALIAS] COMMAND ..."

    def run_from_argv(self, argv: Sequence[str]) -> None:
        """Called by manage.py with all its arguments; exits with the command's status."""
        # Not parsed by Django: the options are those of tarry, --version and --help too.
        sys.exit(run(argv[2:]))

    def handle(self, *args: Any, **options: Any) -> None:
        """Called by `call_command("tarry", "status")`."""
        if status := run([str(word) for word in args]):
            sys.exit(status)

    def add_arguments(self, parser: Any) -> None:
        """For `call_command`."""
        parser.add_argument("args", nargs="*")


Command = TarryCommand
"""The name that Django looks for."""


def run(words: Sequence[str]) -> int:
    """The exit status of the command."""
    alias = "app"
    if len(words) > 1 and words[0] == "--backend":
        alias, words = words[1], words[2:]
    return main(["-a", f"tarry.django.worker:{alias}", *words])
