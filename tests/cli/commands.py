"""The commands as the parser has them."""

import argparse
from collections.abc import Sequence

from tarry.cli.main import parser
from tarry.operate.method import Method


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    found = parser(command)._subparsers
    assert found is not None
    choices = found._group_actions[0].choices
    assert isinstance(choices, dict)
    one: argparse.ArgumentParser = choices[command]
    return one


def methods_of(command: str) -> Sequence[Method]:
    """The methods that the actions of a command call."""
    return list((parser_of(command).get_default("methods") or {}).values())
