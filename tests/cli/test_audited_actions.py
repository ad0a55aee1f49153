import argparse

import pytest

from tarry.cli.audit import ACTS
from tarry.cli.main import AUDITED, COMMAND_MODULES, parser

READING = {"list", "show", "why", "try", "approvals"}
"""Actions of commands that change nothing."""


def parser_of(command: str) -> argparse.ArgumentParser:
    found = parser(command)._subparsers
    assert found is not None
    choices = found._group_actions[0].choices
    assert isinstance(choices, dict)
    one: argparse.ArgumentParser = choices[command]
    return one


def actions(command: str) -> set[str]:
    return {name for one in parser_of(command)._actions if one.dest == "action" for name in one.choices or ()}


def acts_of(command: str) -> set[str]:
    methods = parser_of(command).get_default("methods") or {}
    return {action for action, method in methods.items() if method.is_audited} | set(ACTS.get(command, {}))


@pytest.mark.parametrize("command", sorted(name for names in COMMAND_MODULES.values() for name in names))
def test_each_action_that_changes_something_has_a_name_in_the_log_of_acts(command: str) -> None:
    acts = actions(command) - READING
    assert acts_of(command) == acts
    assert (command in AUDITED) == bool(acts)
