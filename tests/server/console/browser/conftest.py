import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tarry.server.serving.console import ACTS
from tests.server.console.browser.done_acts import DOES
from tests.server.console.browser.place import MakePerson, Person, Place, people
from tests.servers.chromium import CHROMIUM
from tests.servers.redis import RedisServer

OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


# For a module, not for all: while it is open, no other test of the process could run an event loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: python -m tests.servers.install")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def place(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A master whose store is SQLite."""
    place = Place(tmp_path_factory.mktemp("place"))
    yield place
    place.close()


@pytest.fixture(scope="module")
def redis_place(
    browser: Browser, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A master whose store is Redis."""
    directory = tmp_path_factory.mktemp("place")
    # A prefix for each: the master of an earlier module was killed, and is still among the hosts of its store.
    place = Place(directory, f"{redis_server.url}?prefix={directory.name}")
    yield place
    place.close()


STORES = ("sqlite", "redis")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A browser shows the same whatever store is behind the page: in `make test` each test meets one of them, which
    the length of its name chooses."""
    of_stores = [one for one in items if isinstance(one, pytest.Function) and "any_place" in one.fixturenames]
    for one in of_stores:
        if one.callspec.params["any_place"] != STORES[len(one.originalname) % len(STORES)]:
            one.add_marker("deep")


@pytest.fixture(params=STORES)
def any_place(request: pytest.FixtureRequest) -> Place:
    place: Place = request.getfixturevalue("place" if request.param == "sqlite" else "redis_place")
    return place


@pytest.fixture
def make_person(browser: Browser, place: Place) -> Iterator[MakePerson]:
    with people(browser, place) as make:
        yield make


@pytest.fixture
def ann(make_person: MakePerson) -> Person:
    """She may do everything."""
    return make_person()


@pytest.fixture
def operator(browser: Browser, any_place: Place) -> Iterator[Person]:
    """Ann, at the console of a master with SQLite, and then at one with Redis."""
    with people(browser, any_place) as make:
        yield make()


@pytest.fixture(autouse=True)
def what_was_promised(request: pytest.FixtureRequest) -> Iterator[None]:
    """The browser has sent the form of each act that the test is to do."""
    promised = DOES.get(request.node.originalname, "").split()
    person: Person | None = request.getfixturevalue("operator") if promised else None
    yield
    for act in ACTS:
        if person and act.method.name in promised:
            form = re.compile(re.sub(r"\{\w+\}", "[^/]+", act.route))
            assert any(form.fullmatch(path) for path in person.posted), act.method.name
