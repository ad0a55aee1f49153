"""The parser of the command line: for an unknown word it suggests the nearest choice."""

import argparse
import re
from typing import NoReturn

from tarry.model.nearest import did_you_mean

_NO_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)$")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser with suggestions, also for its subcommands."""

    def error(self, message: str) -> NoReturn:
        """Prints the usage and what is wrong, and exits with status 2."""
        found = _NO_CHOICE.search(message)
        meant = did_you_mean(found[1], re.findall(r"[\w-]+", found[2])) if found else ""
        super().error(message + meant)
