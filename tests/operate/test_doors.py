"""Each method of operators is in every way in, or a line here says why it is not."""

from collections.abc import Iterator, Mapping

import pytest

from tarry.cli.main import COMMAND_MODULES
from tarry.operate import catalog
from tarry.operate.method import Method
from tarry.server.serving.api import METHODS
from tarry.server.serving.console import ACTS as CONSOLE_ACTS
from tests.cli.commands import methods_of

DOORS = ("command", "console", "remote")
ACTING = [method for method in METHODS if method.is_audited]

GAPS: Mapping[str, str] = {
    "start_operation command": "`tarry jobs` with a filter begins it",
    "put_task command": "for programs that bring their tasks along; people add or edit",
    "put_task console": "the form of a task adds or edits",
    "end_connection command": "`tarry status --connections --end ID` asks the master itself, also without the HTTP API",
    "end_connection remote": "connections are those of the host that answers, not of the store",
}


def commands() -> Iterator[str]:
    """The names of the methods that commands call."""
    for command in (name for names in COMMAND_MODULES.values() for name in names):
        yield from (method.name for method in methods_of(command))


@pytest.fixture(scope="module")
def there() -> Mapping[str, set[str]]:
    return {
        "command": set(commands()),
        "console": {act.method.name for act in CONSOLE_ACTS},
        "remote": {method.name for method in catalog.METHODS},
    }


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("method", ACTING, ids=lambda method: method.name)
def test_each_act_is_in_every_way_in(there: Mapping[str, set[str]], method: Method, door: str) -> None:
    gap = GAPS.get(f"{method.name} {door}")
    is_there = method.name in there[door]
    assert is_there or gap, f"{door} has no {method.name}"
    assert not (is_there and gap), f"{door} has {method.name}: its line in GAPS goes"


def test_each_gap_is_of_a_method_and_a_door() -> None:
    known = {f"{method.name} {door}" for method in ACTING for door in DOORS}
    assert GAPS.keys() <= known


@pytest.mark.parametrize("method", catalog.METHODS, ids=lambda method: method.name)
def test_what_is_made_for_every_way_in_is_in_the_http_api_and_described(method: Method) -> None:
    assert method in METHODS
    assert method.summary
    assert method.scope is not None


def test_names_are_unique() -> None:
    names = [method.name for method in METHODS]
    assert len(names) == len(set(names))
