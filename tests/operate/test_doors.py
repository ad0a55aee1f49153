"""Each method is in every way in, or a line here says why it is not."""

from collections.abc import Iterator, Mapping

import pytest

from tarry.cli.main import COMMAND_MODULES
from tarry.operate import catalog
from tarry.operate.method import Method
from tarry.server.serving.api import METHODS
from tarry.server.serving.console import ACTS as CONSOLE_ACTS
from tests.cli.commands import methods_of

DOORS = ("command", "console", "remote")
LOOKING_DOORS = ("command", "remote")
"""A page of the console shows what several methods answer."""
CASES = [(method, door) for method in METHODS for door in (DOORS if method.is_audited else LOOKING_DOORS)]

GAPS: Mapping[str, str] = {
    "start_operation command": "`tarry jobs` with a filter begins it",
    "put_task command": "for programs that bring their tasks along; people add or edit",
    "put_task console": "the form of a task adds or edits",
    "end_connection command": "`tarry status --connections --end ID` asks the master itself, also without the HTTP API",
    "list_connections command": "`tarry status --connections` asks the processes themselves, also without the HTTP API",
    "list_nodes command": "`tarry flows show ID` is a tree of them",
    "get_stats command": "`tarry queues` and `tarry top` sum them up by queue",
    "list_workers command": "`tarry hosts show NAME` lists those of a host",
    "list_job_requests command": "`tarry hosts show NAME` lists what its master was asked for",
    "get_horizon command": "`tarry queues show NAME` has what comes due in its queue",
    "put_jobs command": "`tarry enqueue` puts into the store itself, and so does its file of many",
    "put_jobs remote": "`client.enqueue`, with the words of an app",
    "wait_for_result command": "a person looks again, by `tarry jobs show ID`",
    "wait_for_result remote": "`job.result()`",
    "stream_events command": "`tarry top` is the live picture of people",
    "stream_events remote": "a stream for pages, which reload by it: a program asks for what it wants",
    "metrics command": "`tarry top --json` and `tarry stats --json` have the figures",
    "metrics remote": "a page for Prometheus",
    **{f"{name} {door}": "for probes" for name in ("healthz", "readyz") for door in LOOKING_DOORS},
    **{f"{name} {door}": "tells of the HTTP API" for name in ("openapi", "docs") for door in LOOKING_DOORS},
    **{
        f"{name} {door}": "for programs that run jobs by HTTP, and no worker of tarry"
        for name in (
            "claim_of_queue",
            "claim_of_queues",
            "finish_job",
            "fail_job",
            "release_job",
            "extend_lease",
            "report_progress",
            "settle_jobs",
        )
        for door in LOOKING_DOORS
    },
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


@pytest.mark.parametrize(("method", "door"), [pytest.param(*case, id=f"{case[0].name}-{case[1]}") for case in CASES])
def test_each_method_is_in_every_way_in(there: Mapping[str, set[str]], method: Method, door: str) -> None:
    gap = GAPS.get(f"{method.name} {door}")
    is_there = method.name in there[door]
    assert is_there or gap, f"{door} has no {method.name}"
    assert not (is_there and gap), f"{door} has {method.name}: its line in GAPS goes"


def test_each_gap_is_of_a_method_and_a_door() -> None:
    known = {f"{method.name} {door}" for method, door in CASES}
    assert GAPS.keys() <= known


@pytest.mark.parametrize("method", catalog.METHODS, ids=lambda method: method.name)
def test_what_is_made_for_every_way_in_is_in_the_http_api_and_described(method: Method) -> None:
    assert method in METHODS
    assert method.summary
    assert method.scope is not None


def test_names_are_unique() -> None:
    names = [method.name for method in METHODS]
    assert len(names) == len(set(names))
