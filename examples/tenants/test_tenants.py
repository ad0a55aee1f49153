"""Who waits for whom, as a reader would test their own."""

import pytest

from examples.tenants.app import app, order, render, shares, started, subscribe
from tarry.testing import Jobs


@pytest.fixture(autouse=True)
def nothing_started() -> None:
    started.clear()


def test_a_small_customer_does_not_wait_for_a_large_one(jobs: Jobs) -> None:
    order("whale", 400)
    order("minnow", 1)
    jobs.drain()
    assert started.index("minnow") <= 2


def test_who_pays_more_gets_more(jobs: Jobs) -> None:
    subscribe("acme", "business")
    order("whale", 100)
    order("acme", 100)
    jobs.drain()
    assert 36 <= shares(50)["acme"] <= 44


def test_a_flood_is_refused_and_hits_nobody_else(jobs: Jobs) -> None:
    order("whale", 400)
    assert "ordered" not in order("whale", 200)
    assert order("minnow", 5) == "minnow: 5 pages ordered"
    assert app.jobs(labels={"customer": "whale"}).count() == 500, "as many as may wait"


def test_a_customer_is_paused_and_the_others_go_on(jobs: Jobs) -> None:
    order("whale", 10)
    order("minnow", 1)
    render.tenant("whale").pause()
    jobs.drain()
    assert started == ["minnow"]
    render.tenant("whale").resume()
    jobs.drain()
    assert started.count("whale") == 10
