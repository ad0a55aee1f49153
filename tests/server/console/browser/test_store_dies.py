"""The store dies under an open page: the page says so, and goes on when the store is there again."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.server.console.browser.place import Person, Place, people
from tests.servers.fixtures import started
from tests.servers.redis import RedisServer


@pytest.fixture(scope="module")
def mortal_redis(servers_directory: Path) -> Iterator[RedisServer]:
    """It keeps what it has."""
    yield from started(RedisServer(servers_directory / "mortal-redis", "--appendonly", "yes"))


@pytest.fixture
def person(browser: Browser, mortal_redis: RedisServer, tmp_path: Path) -> Iterator[Person]:
    with closing(Place(tmp_path, mortal_redis.url)) as place, people(browser, place) as make:
        yield make()


def test_a_redis_server_that_dies_is_told_and_the_page_goes_on(person: Person, mortal_redis: RedisServer) -> None:
    job = person.place.add("send", "ann@example.org", queue="outlived", delay=3600)
    page = person.open("/jobs?queue=outlived")
    live = page.locator("#live")
    expect(live).to_have_text("Live")
    page.evaluate("window.mark = 1")
    mortal_redis.kill()
    expect(live).to_have_text("Not live: the page cannot be refreshed now", timeout=40_000)
    # What was there can still be read; another page says what is wrong.
    expect(page.get_by_role("link", name=job[-8:])).to_be_visible()
    other = person.context.new_page()
    answer = other.goto(f"{person.place.url}/queues")
    assert answer is not None
    assert answer.status == 503
    expect(other.locator("main")).to_contain_text("The store cannot be reached now")
    other.close()
    mortal_redis.start()
    expect(live).to_have_text("Live", timeout=40_000)
    second = person.place.add("send", "bob@example.org", queue="outlived", delay=3600)
    expect(page.get_by_role("link", name=second[-8:])).to_be_visible(timeout=40_000)
    assert page.evaluate("window.mark") == 1
    # The browser tells of each refused refresh, and nothing else went wrong.
    assert person.passing >= 1
