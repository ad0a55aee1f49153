"""What a token for some queues gets is the same, byte by byte, whatever there is in other queues: every method of the
API and every page and act of the console, on a store with its own jobs alone and on one with the jobs of others too."""

import re
import shutil
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from tarry import App, approve
from tarry.client.audit.log import Act, ActLog
from tarry.client.bounds import set_bound_by_hand
from tarry.client.clock import FakeClock
from tarry.keeper.host_requests import HostAct, HostRequests, new_request
from tarry.keeper.hosts import HostEntry
from tarry.model.bound import Bound
from tarry.model.history.error_kind import error_kind
from tarry.model.job import State
from tarry.model.limit import Limit
from tarry.operate.access import Scope
from tarry.operate.method import Method
from tarry.server.identity.tokens import TokenAccess, digest
from tarry.server.serving.api import METHODS
from tarry.server.serving.console import ACTS, PAGES
from tarry.store.queries.history_reading import bring_up_to_date
from tarry.store.queries.hosts import Host, PoolFigures, WorkerFigures
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Store, Want
from tests.server.console.visiting import ORIGIN
from tests.server.http.calling import api, run
from tests.server.http.test_authorisation import BODIES

OWN, FOREIGN = "shop", "internal"
NOBODY = "01900000-0000-7000-8000-000000000000"
GUARDED = [method for method in METHODS if method.scope is not None]
MUST_DIFFER = {"add_task", "put_task"}
"""With the name of a task of others: names of tasks are those of the whole app, so it is taken."""
QUERIES: Mapping[str, tuple[str, ...]] = {
    "list_jobs": (
        "", "?limit=1", "?text=orange", "?text=orange&limit=1", "?state=ready", "?state=dead&limit=1", "?key=k",
        "?task=internal.send", "?older=0", "?created_since=1h", f"?cursor={NOBODY}",
    ),
    "list_flows": ("", "?limit=1", "?state=running", "?state=running&limit=1", "?key=k", "?name=internal"),
    "list_acts": ("", "?limit=1", "?who=root", "?queue=internal", "?act=pause_queue", "?since=1h"),
    "list_tasks": ("", "?search=internal", "?kind=http"),
    "list_approvals": ("", "?question=internal", "?question=shop"),
    "stream_events": ("?seconds=0", "?seconds=0&state=ready", "?seconds=0&task=internal.send",
                      "?seconds=0&queue=internal"),
    "get_history": ("", "?durations=true", "?task=internal.send", "?queue=internal"),
    "get_totals": ("", "?task=internal.send"),
    "get_horizon": ("", "?queue=internal"),
    "wait_for_result": ("?wait=0",),
}  # fmt: skip
HELD = {"epoch": 1}


def app_of(file: Path) -> App:
    app = App(f"sqlite:///{file}", closures=True, retry=None)
    for name in (OWN, FOREIGN):

        def send(fruit: str = "", fails: bool = False) -> str:
            if fails:
                raise LookupError(fruit)
            return fruit

        def ask(question: str) -> bool:
            return bool(approve(question, key="7").ok)

        app.task(name=f"{name}.send", queue=f"{name}-mail", cron="0 3 * * *")(send)
        app.task(name=f"{name}.ask", queue=f"{name}-ask")(ask)
    return app


def fill(app: App, name: str) -> None:
    """Everything that there is of those queues: jobs in each state, flows, an approval, limits and the rest."""
    send, ask, queue, store = app.named(f"{name}.send"), app.named(f"{name}.ask"), f"{name}-mail", app.client.store
    send.enqueue(f"orange of {name}")
    send.enqueue(name, fails=True)
    ask.enqueue(name)
    app.drain(queues=[queue, f"{name}-ask"])
    send.using(delay="1h", key="k").enqueue(f"orange of {name}")
    for number in range(3):
        send.using(idempotency=f"r{number}").enqueue(f"orange {number} of {name}")
    (held,) = store.claim([Want(queue, 0, 1)], 1, owner_of(name), 10**15, store.time())
    with app.using(queue=queue, key="k").flow(name) as flow:
        flow.add(send.call("a"))
    store.limit(f"queue:{queue}", Limit(2))
    store.pause(f"{name}-paused", True)
    set_bound_by_hand(store, queue, Bound(1000))
    host = Host(
        owner_of(name).rpartition(":")[0] + ":0", f"{name}-host", 9, pools=[PoolFigures(name, 1, queues=[queue])],
        workers=[WorkerFigures(name, 1, owner_of(name))], worker_count=1, remote_control=True,
    )  # fmt: skip
    HostEntry(store, lambda: host).register_host()
    HostRequests(store, host.instance).put(new_request(HostAct.STACK, name, store.time(), held))
    acts = [Act(store.time() + number, "root", "pause_queue", "done", queue=queue) for number in range(3)]
    ActLog(store).append([*acts, replace(acts[0], who="it", subject=name)], store.time())
    bring_up_to_date(store.history, store.time())


def error_of(store: Store, name: str) -> str:
    """The id of the error of the job that failed; of none, if it is not there."""
    found = store.find(Query((State.DEAD,), f"{name}-mail", f"{name}.send"))
    return next((error_kind(job.task, job.note).fingerprint for job in found), "0" * 16)


def owner_of(name: str) -> str:
    return f"{len(name)}|x.{len(name)}:2:3:1"


async def add_by_http(app: App, access: TokenAccess, name: str) -> None:
    async with api(app, access=access) as client:
        client.headers["authorization"] = "Bearer root"
        settings = {"url": f"https://{name}.example/hook", "queue": f"{name}-mail"}
        added = await client.post("/v1/tasks", json={"task": f"{name}.hook", "settings": settings})
        assert added.status_code == 201, added.text
        wanted = {"act": "delete", "filter": {"queue": f"{name}-mail", "task": "none"}}
        operation = (await client.post("/v1/operations", json=wanted)).json()["id"]
        while (await client.get(f"/v1/operations/{operation}")).json()["state"] != "done":
            pass


def build(directory: Path) -> None:
    """The two stores: `alone.db`, and `beside.db` that has also what is of others."""
    alone, beside = directory / "alone.db", directory / "beside.db"
    access = access_of(directory / "tokens.toml", "admin")
    app = app_of(alone)
    fill(app, OWN)
    run(lambda: add_by_http(app, access, OWN))
    app.close()
    shutil.copy(alone, beside)
    other = app_of(beside)
    store = other.client.store
    (first,) = store.find(Query(limit=1))
    fill(other, FOREIGN)
    foreign = [job for job in store.find(Query(limit=1000)) if job.queue.startswith(FOREIGN)]
    # Also jobs whose ids stand before and between the others.
    ready = next(job for job in foreign if job.state is State.READY)
    early = first.id[:5] + b"\0" + ready.id[6:], first.id[:15] + bytes([first.id[15] ^ 1])
    store.insert([replace(ready, id=id, key=None) for id in early])
    run(lambda: add_by_http(other, access, FOREIGN))
    other.close()


def access_of(file: Path, *scopes: str) -> TokenAccess:
    entry = '[tokens.{}]\nsha256 = "{}"\nscopes = {}\nqueues = {}\n'
    parts = (
        entry.format("it", digest("it").hex(), [str(scope) for scope in scopes], '["shop-*"]'),
        entry.format("root", digest("root").hex(), ["admin"], '["*"]'),
    )
    file.write_text("".join(parts))
    return TokenAccess(file)


class Pair:
    """Two stores that differ in what is in the queues of others."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "tokens.toml"
        self.apps = (app_of(directory / "alone.db"), app_of(directory / "beside.db"))
        self.now = self.apps[1].client.store.time()

    def access(self, *scopes: str) -> TokenAccess:
        return access_of(self.file, *scopes)

    def names(self, app: App, name: str) -> Iterator[dict[str, str]]:
        """What a method may be called for: each job, flow and operation of the others, or of its own."""
        store = app.client.store
        given = {
            "queue": f"{name}-mail", "task": f"{name}.hook", "schedule": f"{name}.send", "limit": f"queue:{name}-mail",
            "host": f"{name}-host", "key": "7", "connection": "1-1", "error": error_of(store, name),
        }  # fmt: skip
        yield given | {"id": NOBODY}
        yield given | {"task": f"{name}.send", "limit": f"task:{name}.send", "queue": f"{name}-paused", "id": NOBODY}
        # One of each kind.
        jobs = {(job.queue, job.state): job for job in store.find(Query(limit=1000)) if job.queue.startswith(name)}
        for job in jobs.values():
            yield given | {"id": ids.text(job.id)}
        for cell in store.kv_list("operations/"):
            yield given | {"id": cell.partition("/")[2]}

    def close(self) -> None:
        for app in self.apps:
            app.close()


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stores")
    build(directory)
    return directory


@pytest.fixture
def pair(stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    for name in ("alone.db", "beside.db"):
        shutil.copy(stores / name, tmp_path)
    pair = Pair(tmp_path)
    for app in pair.apps:
        monkeypatch.setattr(app.client, "clock", FakeClock(pair.now))
        monkeypatch.setattr(app.client.factory, "_clock", app.client.clock)
        # Of each connection: pages read the history by one of their own.
        monkeypatch.setattr(type(app.client.store), "time", lambda store: pair.now)
    yield pair
    pair.close()


_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_CHANGES = re.compile(
    r'<time[^>]*>[^<]*</time>|cursor=\d{16}\.|"next":"\d{16}\.|name="csrf" value="\w+"'
    r'|"(at|created|ended|asked|now|counted|seen|day|version)":[\d.]+'
    r"|_created [\d.e+]+|tarry_store_ping_seconds\S+ \S+|tarry_oldest_seconds\S+ \S+"
)


def told(answer: httpx.Response, known: set[str]) -> tuple[int, dict[str, str], str]:
    """The answer without the times and ids that each request makes."""
    text = _ID.sub(lambda found: found[0] if found[0] in known else "NEW", answer.text)
    headers = {name: value for name, value in answer.headers.items() if name not in ("content-length", "set-cookie")}
    headers = {
        name: _ID.sub(lambda found: found[0] if found[0] in known else "NEW", one) for name, one in headers.items()
    }
    return answer.status_code, headers, _CHANGES.sub("TIME", text)


def paths_of(route: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        route = route.replace(f"{{{name}}}", value)
    assert "{" not in route, route
    return route


def body_of(method: Method, names: Mapping[str, str], name: str) -> Any:
    body = BODIES.get(method.name)
    if method.name == "settle_jobs":
        return {"ends": [{"end": "finish", "id": names["id"], "epoch": 1}]}
    text = repr(body).replace("mail.send", f"{name}.send").replace("'mail'", f"'{name}-mail'")
    return eval(text) if body is not None else None


def requests(pair: Pair, method: Method) -> Iterator[tuple[str, Any]]:
    """What to ask: for what is there on one store only, then for what is there on both."""
    beside = pair.apps[1]
    seen = set()
    for name in (FOREIGN, OWN):
        for names in pair.names(beside, name):
            path, body = paths_of(method.route, names), body_of(method, names, name)
            for query in QUERIES.get(method.name, ("",)):
                if (asked := (path + query, repr(body))) not in seen:
                    seen.add(asked)
                    yield path + query, body


def known_ids(pair: Pair) -> set[str]:
    found = {ids.text(job.id) for app in pair.apps for job in app.client.store.find(Query(limit=1000))}
    return found | {cell.partition("/")[2] for app in pair.apps for cell in app.client.store.kv_list("operations/")}


def compare(pair: Pair, scopes: tuple[str, ...], asked: list[tuple[str, str, Any]]) -> None:
    """Each request gets the same answer on both."""
    known = known_ids(pair)

    async def story(app: App) -> list[tuple[int, dict[str, str], str]]:
        async with api(app, access=pair.access(*scopes)) as client:
            client.headers["authorization"] = "Bearer it"
            return [
                told(await client.request(verb, path, json=body, follow_redirects=False), known)
                for verb, path, body in asked
            ]

    alone, beside = (run(lambda: story(app)) for app in pair.apps)  # noqa: B023 - run at once
    for request, one, other in zip(asked, alone, beside, strict=True):
        lines = zip_longest(one[2].splitlines(), other[2].splitlines())
        assert [pair for pair in lines if pair[0] != pair[1]] == [], request
        assert other == one, request


@pytest.mark.parametrize("method", GUARDED, ids=lambda method: method.name)
def test_a_method_tells_nothing_of_the_queues_of_others(pair: Pair, method: Method) -> None:
    asked = [
        (method.verb, path, body)
        for path, body in requests(pair, method)
        if method.name not in MUST_DIFFER or FOREIGN not in f"{path}{body}"
    ]
    assert asked
    compare(pair, (str(method.scope),), asked)
    # Whoever may do anything else too is shown more of it.
    if method.scope is Scope.READ:
        compare(pair, (Scope.ADMIN,), asked)


FORMS: Mapping[str, dict[str, str]] = {
    "move_job": {"priority": "5"}, "edit_job": {"args:json": "[]", "version": "x"}, "edit_task": {"enabled": "false"},
    "replay_endpoint": {"since": "60"},
    "set_limit": {"at_once": "1"}, "start_operation": {"act": "delete", "filter.queue": "shop-mail"},
    "decide_approval": {"ok": "true"}, "scale_host": {"pool": "x", "workers": "1"}, "dump_worker": {"worker": "x"},
}  # fmt: skip


def visits(pair: Pair) -> Iterator[tuple[str, str, Any]]:
    """Every page and every act of the console, for what others have and for its own."""
    for name in (FOREIGN, OWN):
        for names in list(pair.names(pair.apps[1], name)):
            for page in PAGES:
                yield "GET", paths_of(page.route, names), None
            for act in ACTS:
                # With the name of a task of others: it is taken.
                if act.method.name not in MUST_DIFFER:
                    yield "POST", paths_of(act.route, names), FORMS.get(act.method.name, {})


def test_the_console_tells_nothing_of_the_queues_of_others(pair: Pair) -> None:
    known, asked = known_ids(pair), list(dict.fromkeys((verb, path, str(form)) for verb, path, form in visits(pair)))
    assert len(asked) > 100

    async def story(app: App) -> list[tuple[int, dict[str, str], str]]:
        found = []
        async with api(app, access=pair.access(Scope.READ, Scope.OPERATE, Scope.ADMIN)) as client:
            client.headers.update({"accept": "text/html", "origin": ORIGIN})
            signed = await client.post("/sign-in", data={"token": "it"})
            assert signed.status_code == 303, signed.text
            page = await client.get("/queues/shop-mail")
            (proof, *_) = re.findall(r'name="csrf" value="(\w+)"', page.text)
            for verb, path, form in asked:
                data = None if verb == "GET" else {"csrf": proof, **eval(form)}
                found.append(told(await client.request(verb, path, data=data, follow_redirects=False), known))
        return found

    alone, beside = (run(lambda: story(app)) for app in pair.apps)  # noqa: B023 - run at once
    for request, one, other in zip(asked, alone, beside, strict=True):
        lines = zip_longest(one[2].splitlines(), other[2].splitlines())
        assert [pair for pair in lines if pair[0] != pair[1]] == [], request
        assert other == one, request
    assert {one[0] for one in alone} <= {200, 303, 403, 404, 409, 422}
