import pytest

from tarry.cli.audit import ACTS
from tarry.cli.main import AUDITED, COMMAND_MODULES, parser

READING = {"list", "show", "why", "try", "approvals"}
"""Actions of commands that change nothing."""


def actions(command: str) -> set[str]:
    found = parser(command)._subparsers
    assert found is not None
    choices = found._group_actions[0].choices
    assert isinstance(choices, dict)
    return {name for one in choices[command]._actions if one.dest == "action" for name in one.choices or ()}


@pytest.mark.parametrize("command", sorted(name for names in COMMAND_MODULES.values() for name in names))
def test_each_action_that_changes_something_has_a_name_in_the_log_of_acts(command: str) -> None:
    acts = actions(command) - READING
    assert set(ACTS.get(command, {})) == acts
    assert (command in AUDITED) == bool(acts)
