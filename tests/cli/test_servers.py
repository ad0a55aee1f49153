"""The commands on stores that are servers: each fact is told once, and no password is."""

import msgspec
import pytest

from tests.cli.project import Project, until


@pytest.fixture(params=["redis_server", "postgres_server", "mariadb_server"])
def url(request: pytest.FixtureRequest, project: Project) -> str:
    server = request.getfixturevalue(request.param)
    url: str = server.url
    project.settings(f'store = "{url}"\n')
    return url


def test_check_tells_each_fact_once(project: Project, url: str) -> None:
    ran = project.tarry("--json", "check")
    assert ran.complaints == []
    said = [fact["name"] for fact in msgspec.json.decode(ran.out)["facts"]]
    assert {"store", "schema", "durability", "round trip", "clock offset"} <= set(said)
    assert len(set(said)) == len(said)


def test_a_job_goes_its_way_under_a_master(project: Project, url: str) -> None:
    project.serve()
    id = project.said("enqueue", "app.add", "[1, 2]")
    until(lambda: project.facts("jobs", "show", id)[0]["state"] == "done")
    project.said("jobs", "delete", id, "--yes")
