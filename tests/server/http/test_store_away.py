"""Every method of the API while the store is away, and once it is back."""

import time

import httpx
import pytest

from tarry import App
from tarry.keeper.hosts import HostEntry
from tarry.operate.method import Method
from tarry.server.serving.api import METHODS
from tarry.store.memory.store import MemoryStore
from tarry.tasks.lazy_asyncio import asyncio
from tests.server.http.calling import api, run
from tests.server.http.test_authorisation import HOOK, HOST, add_error, ask, call
from tests.store.switched import Switched

WITHOUT_A_STORE = {"list_connections", "healthz", "list_stores", "openapi", "docs", "metrics", "stream_events"}
"""They answer all the same: with what is known, or once the store is back."""


LIMIT = 15.0


def _send() -> None: ...


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_method_says_503_while_the_store_is_away_and_works_again_at_once(method: Method) -> None:
    store = Switched(MemoryStore())
    app = App(store, closures=True)
    send = app.task(name="mail.send", queue="mail", cron="0 3 * * *")(_send)
    for _ in range(2):
        app.named("mail.send").enqueue()
    ask(store)
    error = add_error(store)
    flow = app.using(queue="mail").chain(send.call()).id
    HostEntry(store, lambda: HOST).register_host()

    end = time.monotonic() + LIMIT

    async def story() -> tuple[httpx.Response, httpx.Response]:
        async with api(app) as client:
            hook = {"task": "hook", "settings": {"url": HOOK, "queue": "mail"}}
            assert (await client.post("/v1/tasks", json=hook)).status_code == 201
            assert (await client.put("/v1/limits/queue:mail", json={"at_once": 9})).status_code == 200
            wanted = {"act": "delete", "filter": {"queue": "mail", "task": "none"}}
            operation = (await client.post("/v1/operations", json=wanted)).json()["id"]
            taken = await client.post("/v1/queues/mail/claim", json={"limit": 1})
            held = taken.json()["jobs"][0]["id"]
            names = {"queue": "mail", "task": "hook", "schedule": "mail.send", "limit": "queue:mail"}
            if method.name in ("pause_limit_key", "resume_limit_key"):
                names["limit"] = "each:mail.send=ann"
            names |= {"host": HOST.name, "key": "7", "connection": "1-1", "error": error}
            names["id"] = next(
                (id for part, id in {"operations": operation, "flows": flow}.items() if part in method.route),
                held,
            )
            store.down()
            away = await call(client, method, names)
            store.up()
            back = await call(client, method, names)
            # All claims of a process share one loop, which rests for a moment after a failure.
            while method.tag == "claims" and "store-unavailable" in back.text and time.monotonic() < end:
                await asyncio.sleep(0.02)
                back = await call(client, method, names)
            return away, back

    away, back = run(story)
    app.close()
    assert back.status_code < 400 or back.status_code in (409, 422) or method.name == "end_connection", back.text
    if method.name == "settle_jobs":
        assert [end["problem"]["status"] for end in away.json()["ends"]] == [503]
    elif method.name == "end_connection":
        # There is none with that id; the store was not needed to see that.
        assert (away.status_code, back.status_code) == (404, 404)
    elif method.name in WITHOUT_A_STORE:
        assert away.status_code == 200, away.text
    elif method.name == "get_stats" and away.status_code == 200:
        # What was counted for another method, less than a second ago.
        assert away.json()["counts"]
    else:
        assert away.status_code == 503, away.text
        assert method.name == "readyz" or away.headers["retry-after"] == "1"
