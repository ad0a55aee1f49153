import pytest

from tarry.cli.main import COMMAND_MODULES
from tests.cli.commands import methods_of, parser_of

READING = {"list", "show", "why", "try", "approvals"}
"""Actions of commands that change nothing."""
SENT = {"signal"}
"""Those that programs send as they put jobs: none of them is an act of an operator."""


def actions(command: str) -> set[str]:
    return {name for one in parser_of(command)._actions if one.dest == "action" for name in one.choices or ()}


@pytest.mark.parametrize("command", sorted(name for names in COMMAND_MODULES.values() for name in names))
def test_each_action_that_changes_something_is_in_the_log_of_acts(command: str) -> None:
    acts = {method.command.partition(" ")[2] for method in methods_of(command) if method.is_audited}
    assert acts == actions(command) - READING - SENT
