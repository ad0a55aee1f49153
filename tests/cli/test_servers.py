"""The commands on stores that are servers: each fact is told once, and no password is."""

import msgspec
import pytest

from tests.cli.project import Place, until


@pytest.fixture(params=["redis_server", "postgres_server", "mariadb_server"])
def url(request: pytest.FixtureRequest, place: Place) -> str:
    server = request.getfixturevalue(request.param)
    url: str = server.url
    place.settings(f'store = "{url}"\n')
    return url


def test_check_tells_each_fact_once(place: Place, url: str) -> None:
    ran = place.tarry("--json", "check")
    assert ran.err == ""
    said = [fact["name"] for fact in msgspec.json.decode(ran.out)["facts"]]
    assert {"store", "schema", "durability", "round trip", "clock offset"} <= set(said)
    assert len(set(said)) == len(said)


def test_a_job_goes_its_way_under_a_master(place: Place, url: str) -> None:
    place.serve()
    id = place.said("enqueue", "app.add", "[1, 2]")
    until(lambda: place.facts("jobs", "show", id)[0]["state"] == "done")
    place.said("jobs", "delete", id, "--yes")
