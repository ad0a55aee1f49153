"""While the store is away, or the server has no room, pages say so; they come back by themselves."""

import asyncio
from collections.abc import Iterator

import pytest

from tarry import App
from tarry.config.config import Config
from tarry.keeper.hosts import HostEntry
from tarry.operate.access import Scope
from tarry.server.console.sign_in import SECRET_KEPT, SignIn
from tarry.server.console.sign_in_session import COOKIE, SECRET_CELL
from tarry.server.identity.tokens import TokenAccess
from tarry.server.service import DoorService, DoorSettings
from tarry.server.serving.application import create_application
from tarry.server.serving.console import PAGES, Console
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Query
from tarry.store.rules.history.error_groups import ErrorGroup, encode_group, group_place
from tarry.store.shards.sharded import ShardedStore
from tests.server.console.visiting import Tokens, Visitor, visit, visitor
from tests.server.http.calling import caller, run
from tests.server.http.test_authorisation import HOST
from tests.store.switched import Switched

ERROR = "0123456789abcdef"
AWAY = "The store cannot be reached now"


@pytest.fixture
def store() -> Switched:
    return Switched(MemoryStore())


@pytest.fixture
def app(store: Switched) -> Iterator[App]:
    app = App(store, closures=True)

    @app.task(name="mail.send", queue="mail", cron="0 3 * * *")
    def send() -> None: ...

    send.enqueue()
    app.configure(Config(tasks={"hook": {"url": "http://127.0.0.1:9/hook"}}))
    yield app
    app.close()


WITHOUT_A_STORE = ("/stores", "/connections")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.route not in WITHOUT_A_STORE], ids=lambda page: page.template
)
def test_a_page_says_so_and_recovers(app: App, store: Switched, page: object) -> None:
    (job,) = store.find(Query())
    assert isinstance(page, type(PAGES[0]))
    HostEntry(store, lambda: HOST).register_host()
    place = group_place("mail", ERROR)
    assert store.history.change_errors(lambda _: {place: encode_group(ErrorGroup("ValueError", count=1))})
    flow = app.group([app.tasks["mail.send"].call()]).id

    async def story() -> None:
        async with visitor(app) as browser:
            operation = await browser.client.post("/v1/operations", json={"act": "delete", "filter": {"queue": "no"}})
            ids = {"operations": operation.json()["id"], "flows": flow}
            id = ids.get(page.route.split("/")[1], job.id.hex())
            added = {"task": "added", "settings": {"url": "https://shop.example/"}}
            assert (await browser.client.post("/v1/tasks", json=added)).status_code == 201
            task = "hook" if "endpoints" in page.route else "added" if "edit" in page.route else "mail.send"
            names = {
                "queue": "mail",
                "host": HOST.name,
                "schedule": "mail.send",
                "limit": "each:mail.send",
                "error": ERROR,
            }
            path = page.route.format(id=id, task=task, **names)
            assert (await browser.get(path)).status_code == 200
            store.down()
            away = await browser.get(path)
            assert away.status_code == 503
            assert away.headers["retry-after"] == "1"
            assert AWAY in away.text
            # The way back, and to all other pages.
            assert f'href="{path}"' in away.text
            assert 'href="/hosts"' in away.text
            store.up()
            assert (await browser.get(path)).status_code == 200

    run(story)


def test_errors_of_the_shards_that_are_there_are_shown() -> None:
    """At such a time people look at the first page, too."""
    away = Switched(MemoryStore(name="b"))
    app = App(ShardedStore([MemoryStore(name="a"), away]))
    cell = encode_group(ErrorGroup("ValueError", count=1))
    assert app.client.store.history.change_errors(lambda _: {group_place("mail", ERROR): cell})
    away.down()

    async def story() -> None:
        async with visitor(app) as browser:
            listed = (await browser.get("/errors")).text
            assert ("ValueError" in listed, "memory://b is away" in listed) == (True, True)
            for path in ("/", f"/errors/{ERROR}"):
                assert (await browser.get(path)).status_code == 200
            found = (await browser.client.get("/v1/errors")).json()
            assert ([one["id"] for one in found["errors"]], found["missing"][:18]) == ([ERROR], "memory://b is away")
            assert (await browser.client.get(f"/v1/errors/{'0' * 16}")).status_code == 503

    run(story)
    away.up()
    app.close()


def test_the_connections_are_listed_while_the_store_is_away(app: App, store: Switched) -> None:
    async def story() -> None:
        async with visitor(app) as browser:
            store.down()
            away = await browser.get("/connections")
            assert (away.status_code, "No connection is open." in away.text) == (200, True)

    run(story)


def test_whoever_is_signed_in_stays_so(app: App, store: Switched, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> None:
        await browser.sign_in("operator-token")
        proof = await browser.proof("/queues/mail")
        store.down()
        away = await browser.get("/queues")
        assert (away.status_code, AWAY in away.text, "Sign out" in away.text) == (503, True, True)
        refused = await browser.send("/queues/mail/pause", {"csrf": proof})
        assert (refused.status_code, AWAY in refused.text) == (503, True)
        # What needs no store goes on.
        assert (await browser.send("/language", {"language": "zh"})).status_code == 303
        assert "目前无法连接存储" in (await browser.get("/queues")).text
        store.up()
        assert (await browser.send("/queues/mail/pause", {"csrf": proof})).status_code == 303
        store.down()
        # The browser forgets the session, and is told that others may not know of its end.
        left = await browser.send("/sign-out")
        assert (left.status_code, "目前无法连接存储" in left.text) == (503, True)
        assert COOKIE not in browser.client.cookies

    visit(app, story, tokens)


def test_a_server_that_starts_without_its_store_says_so(app: App, store: Switched, tokens: Tokens) -> None:
    async def story(browser: Visitor) -> None:
        store.down()
        assert (await browser.get("/")).status_code == 503
        assert (await browser.get("/sign-in")).status_code == 200
        entered = await browser.sign_in("reader-token")
        assert (entered.status_code, AWAY in entered.text) == (503, True)
        store.up()
        assert (await browser.sign_in("reader-token")).status_code == 303
        assert (await browser.get("/")).status_code == 200

    visit(app, story, tokens)


def test_a_store_that_cannot_be_written_is_looked_at_all_the_same(app: App, store: Switched) -> None:
    async def story(browser: Visitor) -> None:
        store.down(only="kv_cas")
        page = await browser.text("/queues/mail")
        assert "mail.send" in page
        assert 'name="csrf" value=""' in page
        # Its forms have no proof.
        assert (await browser.send("/queues/mail/pause", {"csrf": ""})).status_code == 503

    visit(app, story)
    assert not store.inner.queues().get("mail")


class Hands:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_secret_of_an_emptied_store_is_read_anew(app: App, store: Switched, tokens: Tokens) -> None:
    clock, service = Hands(), DoorService(app, access=TokenAccess(tokens.file))
    door = SignIn(service, read_only=False, clock=clock)

    async def story() -> None:
        before = await door.sessions()
        cookie = before.open("reader")
        clock.now += SECRET_KEPT - 1
        assert await door.sessions() is before
        store.kv_cas(SECRET_CELL, None, store.kv_get(SECRET_CELL))
        clock.now += 1
        store.down()
        # Nobody is signed out by a store that is away.
        assert (await door.sessions()).read(cookie) is not None
        store.up()
        clock.now += SECRET_KEPT
        assert (await door.sessions()).read(cookie) is None
        assert store.kv_get(SECRET_CELL)
        await asyncio.to_thread(service.close)

    run(story)


def test_a_server_without_room_says_so(app: App) -> None:
    service = DoorService(app, settings=DoorSettings(threads=1, most_calls=0))

    async def story() -> None:
        async with caller(create_application(service)) as client:
            browser = Visitor(client)
            assert (await browser.get("/queues")).status_code == 200
            free = asyncio.Event()
            loop = asyncio.get_running_loop()
            held = asyncio.ensure_future(
                service.run(lambda: asyncio.run_coroutine_threadsafe(free.wait(), loop).result())
            )
            await asyncio.sleep(0)
            busy = await browser.get("/queues")
            assert (busy.status_code, "The server is busy" in busy.text) == (503, True)
            free.set()
            await held
            assert (await browser.get("/queues")).status_code == 200
            await asyncio.to_thread(service.close)
            ending = await browser.get("/queues")
            assert (ending.status_code, "This server is ending" in ending.text) == (503, True)

    run(story)


def test_a_fault_of_a_page_is_one_page_and_a_line_of_the_log(app: App, caplog: pytest.LogCaptureFixture) -> None:
    broken = PAGES[0].method.__class__

    def fail(call: object) -> None:
        raise ZeroDivisionError("secret detail")

    method = broken("GET", "/", Scope.READ, fail, "", "", {}, None)
    service = DoorService(app)
    console = Console(service, pages=[type(PAGES[0])(method, "overview.html")], acts=[])

    async def story() -> None:
        from starlette.applications import Starlette  # noqa: PLC0415

        async with caller(Starlette(routes=console.routes())) as client:
            answer = await Visitor(client).get("/")
            assert answer.status_code == 500
            assert "The server failed" in answer.text
            assert "secret detail" not in answer.text
        await asyncio.to_thread(service.close)

    run(story)
    assert "ZeroDivisionError" in caplog.text


def test_the_page_of_the_stores_comes_while_they_are_away(app: App, store: Switched) -> None:
    async def story(browser: Visitor) -> None:
        assert "answers in" in await browser.text("/stores")
        store.down()
        # It is the page that says so; it asks a store every few seconds.
        assert "memory:" in await browser.text("/stores")

    visit(app, story)
