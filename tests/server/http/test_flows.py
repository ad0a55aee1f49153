"""Flows by HTTP: look at them and their jobs, cancel and retry them; what jobs that belong to one refuse."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry import App, fan_out
from tarry.client.flows import flow_records
from tarry.keeper.hosts import HostEntry
from tarry.model.flow.own_queues import own_queue
from tarry.operate import flows
from tarry.server.identity.tokens import TokenAccess, digest
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.hosts import Host, PoolFigures
from tarry.store.rules import flow_graph
from tests.server.http.calling import request as call

broken: set[str] = set()


@pytest.fixture
def app() -> Iterator[App]:
    broken.clear()
    app = App(MemoryStore(), closures=True, retry=None)

    @app.task(name="charge", queue="bank")
    def charge(order: int) -> str:
        if "charge" in broken:
            raise LookupError("no such card")
        return f"receipt {order}"

    @app.task(name="pack", queue="shop")
    def pack(order: int) -> str:
        return f"parcel {order}"

    @app.task(name="send", queue="shop")
    def send(receipt: str, parcel: str) -> dict[str, str]:
        return {"receipt": receipt, "parcel": parcel}

    @app.task(name="split", queue="shop")
    def split(count: int) -> list[str]:
        return fan_out(pack.call(order) for order in range(count))

    yield app
    app.close()


def order(app: App, key: str | None = None, **more: Any) -> str:
    tasks: Any = app.tasks
    with app.using(queue="shop").flow("order", key=key, **more) as f:
        paid = f.add(tasks["charge"].using(queue="bank").call(7))
        packed = f.add(tasks["pack"].call(7), name="pack it")
        f.add(tasks["send"].call(paid.result, packed.result))
    return f.handle.id


def get(app: App, path: str) -> Any:
    got = call(app, "GET", path)
    assert got.status_code == 200, got.text
    return got.json()


@pytest.fixture
def access(tmp_path: Path) -> TokenAccess:
    """The tokens shop (for that queue), bank, both and all."""
    queues = {"shop": '["shop"]', "bank": '["bank"]', "both": '["shop", "bank"]', "all": '["*"]'}
    file = tmp_path / "tokens.toml"
    parts = (
        f'[tokens.{name}]\nsha256 = "{digest(name).hex()}"\nscopes = ["read", "operate", "put"]\nqueues = {its}\n'
        for name, its in queues.items()
    )
    file.write_text("".join(parts))
    return TokenAccess(file)


def test_a_flow_is_shown_with_its_graph(app: App) -> None:
    id = order(app, "7", deadline="2d")
    got = get(app, f"/v1/flows/{id}")
    assert (got["id"], got["name"], got["key"], got["queue"]) == (id, "order", "7", "shop")
    assert (got["state"], got["phase"], got["size"], got["ended"]) == ("running", "running", 3, 0)
    assert (got["active"], got["blocked"], got["failed"], got["note"]) == (2, 1, 0, None)
    assert got["deadline"] - got["created"] == pytest.approx(2 * 86400, abs=60)
    assert (got["finished"], got["kept_until"], got["result"], got["failed_job"]) == (None, None, None, None)
    boxes = [(box["first"], box["label"], box["task"], box["queue"], box["after"]) for box in got["boxes"]]
    assert boxes == [
        (1, "charge", "charge", "bank", []), (2, "pack it", "pack", "shop", []), (3, "send", "send", "shop", [1, 2]),
    ]  # fmt: skip
    assert [box["states"] for box in got["boxes"]] == [{"ready": 1}, {"ready": 1}, {"blocked": 1}]
    assert (got["looked_at"], got["left_out"], got["hidden"]) == (3, 0, 0)


def test_its_result(app: App) -> None:
    id = order(app)
    app.drain()
    got = get(app, f"/v1/flows/{id}")
    assert (got["state"], got["ended"], got["result"], got["result_omitted"]) == (
        "done", 3, {"receipt": "receipt 7", "parcel": "parcel 7"}, "",
    )  # fmt: skip
    assert got["kept_until"] > got["finished"] >= got["created"]
    assert got["deadline"] is None


def test_the_result_of_a_broadcast(app: App) -> None:
    host = Host("web-1|1.1:9:1:0", "web-1", pools=[PoolFigures("default", workers=1)])
    HostEntry(app.client.store, lambda: host).register_host()
    id = app.tasks["pack"].broadcast(7).id
    app.drain(queues=[own_queue(host.instance)])
    assert get(app, f"/v1/flows/{id}")["result"] == {host.instance: "parcel 7"}


def test_the_result_of_a_group(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    id = app.group(app.tasks["pack"].call(order) for order in range(3)).id
    none = app.group([]).id
    added = app.chain(app.tasks["split"].call(2)).id
    app.drain()
    assert get(app, f"/v1/flows/{id}")["result"] == ["parcel 0", "parcel 1", "parcel 2"]
    assert get(app, f"/v1/flows/{none}")["result"] == []
    assert get(app, f"/v1/flows/{added}")["result"] == ["parcel 0", "parcel 1"]
    monkeypatch.setattr(flow_records, "MOST_PARTS", 2)
    got = get(app, f"/v1/flows/{id}")
    assert (got["result"], got["result_omitted"]) == (None, "it has more than 2 parts")
    monkeypatch.setattr(flow_records, "MOST_PARTS", 3)
    monkeypatch.setattr(flow_records, "MOST_RESULT", 10)
    assert get(app, f"/v1/flows/{id}")["result_omitted"] == "it has more than 0 KB"


def test_the_job_that_failed(app: App) -> None:
    broken.add("charge")
    id = order(app)
    app.drain()
    got = get(app, f"/v1/flows/{id}")
    assert (got["state"], got["phase"], got["failed"], got["blocked"]) == ("dead", "ended", 1, 1)
    assert (got["failed_job"]["index"], got["failed_job"]["error"]) == (1, "LookupError: no such card")
    assert got["boxes"][0]["failed"] == [got["failed_job"]]
    assert (got["note"]["type"], got["note"]["node"]) == ("LookupError", 1)


def test_flows_are_listed_newest_first(app: App) -> None:
    # By id: those of one millisecond have no order in time.
    keys = {order(app, str(number)): str(number) for number in range(5)}
    found = sorted(keys)
    app.drain()
    later = app.chain(app.tasks["pack"].call(1)).id
    got = get(app, "/v1/flows")
    assert [one["id"] for one in got["flows"]] == [later, *reversed(found)]
    assert (got["next"], got["missing"]) == (None, None)
    assert [one["id"] for one in get(app, "/v1/flows?state=running")["flows"]] == [later]
    assert [one["id"] for one in get(app, f"/v1/flows?name=order&key={keys[found[2]]}")["flows"]] == [found[2]]
    assert get(app, "/v1/flows?state=dead")["flows"] == []
    pages, path = [], "/v1/flows?state=done&limit=2"
    while True:
        page = get(app, path)
        pages.append([one["id"] for one in page["flows"]])
        if page["next"] is None:
            break
        path = f"/v1/flows?state=done&limit=2&cursor={page['next']}"
    assert pages == [[found[4], found[3]], [found[2], found[1]], [found[0]]]


def test_what_is_wrong_is_told(app: App) -> None:
    id = order(app)
    node = get(app, f"/v1/flows/{id}/nodes")["jobs"][0]["id"]
    told = {
        f"/v1/flows/{node}": (404, f"{node} is a job of the flow {id}"),
        "/v1/flows/00000000-0000-8000-8000-000000000000": (404, "no flow 00000000-0000-8000-8000-000000000000"),
        "/v1/flows/x": (422, "id: 'x' is no job id"),
        "/v1/flows?state=ready": (422, "state: a flow is running, done, dead, cancelled, and not ready"),
        "/v1/flows?cursor=x": (422, "cursor: 'x' is no job id"),
    }
    for path, (status, detail) in told.items():
        got = call(app, "GET", path)
        assert (got.status_code, got.json()["detail"][: len(detail)]) == (status, detail)


def test_its_jobs_by_pages(app: App) -> None:
    id = order(app)
    first = get(app, f"/v1/flows/{id}/nodes?limit=2")
    assert [(job["index"], job["label"], job["args"]) for job in first["jobs"]] == [
        (1, "charge", [7]), (2, "pack it", [7]),
    ]  # fmt: skip
    assert first["next"] == 2
    rest = get(app, f"/v1/flows/{id}/nodes?limit=2&after=2")
    # What is a result of another job is null.
    assert [(job["index"], job["state"], job["args"]) for job in rest["jobs"]] == [(3, "blocked", [None, None])]
    assert rest["next"] is None
    blocked = get(app, f"/v1/flows/{id}/nodes?state=blocked&state=done")
    assert [job["index"] for job in blocked["jobs"]] == [3]


def test_cancel_and_retry(app: App) -> None:
    broken.add("charge")
    id = order(app)
    early = call(app, "POST", f"/v1/flows/{id}/retry")
    assert (early.status_code, early.json()["detail"]) == (
        409, "the flow is not retried: it has not ended: it is running",
    )  # fmt: skip
    got = call(app, "POST", f"/v1/flows/{id}/cancel", json={"reason": "no longer wanted"}).json()
    assert (got["cancelled"], got["detail"], got["flow"]["state"]) == (True, "", "cancelled")
    assert got["flow"]["note"]["message"] == "no longer wanted"
    again = call(app, "POST", f"/v1/flows/{id}/cancel")
    assert (again.status_code, again.json()["cancelled"], again.json()["detail"]) == (200, False, "it has ended")
    got = call(app, "POST", f"/v1/flows/{id}/retry").json()
    assert (got["jobs"], got["flow"]["state"]) == (2, "running")
    app.drain()
    assert get(app, f"/v1/flows/{id}")["state"] == "dead"
    broken.clear()
    assert call(app, "POST", f"/v1/flows/{id}/retry").json()["jobs"] == 1
    app.drain()
    assert get(app, f"/v1/flows/{id}")["state"] == "done"
    done = call(app, "POST", f"/v1/flows/{id}/retry")
    assert (done.status_code, done.json()["detail"]) == (409, "the flow is not retried: it is done")


def test_what_was_done_is_in_the_log_of_acts(app: App) -> None:
    id = order(app)
    call(app, "POST", f"/v1/flows/{id}/cancel")
    call(app, "POST", f"/v1/flows/{id}/retry")
    acts = get(app, f"/v1/audit?job={id}")["acts"]
    assert [(act["act"], act["queue"], act["outcome"]) for act in acts] == [
        ("retry_flow", "shop", "done"), ("cancel_flow", "shop", "done"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [("POST", "/cancel", {}), ("POST", "/retry", None), ("DELETE", "", None), ("POST", "/move", {"delay": 5})],
)
def test_a_job_that_changes_with_its_flow_says_so(app: App, verb: str, path: str, body: Any) -> None:
    id = order(app)
    (waiting,) = get(app, f"/v1/flows/{id}/nodes?state=blocked")["jobs"]
    for job, what in ((id, "it is a flow"), (waiting["id"], "it waits in a flow")):
        got = call(app, verb, f"/v1/jobs/{job}{path}", json=body)
        assert got.status_code == 409
        assert f": {what}: see `tarry flows show {id}`" in got.json()["detail"]


def test_a_job_says_of_which_flow_it_is(app: App) -> None:
    id = order(app)
    node = get(app, f"/v1/flows/{id}/nodes")["jobs"][0]["id"]
    plain = app.named("pack").enqueue(1)
    assert get(app, f"/v1/jobs/{node}")["flow"] == id
    assert get(app, f"/v1/jobs/{plain.id}")["flow"] is None


def test_a_caller_for_some_queues_sees_its_own(app: App, access: TokenAccess) -> None:
    broken.add("charge")
    id = order(app)
    app.drain()
    assert call(app, "GET", f"/v1/flows/{id}", token="bank", access=access).status_code == 404
    assert call(app, "GET", "/v1/flows", token="bank", access=access).json()["flows"] == []
    got = call(app, "GET", f"/v1/flows/{id}", token="shop", access=access)
    shown = got.json()
    assert [(box["first"], box["after"]) for box in shown["boxes"]] == [(2, []), (3, [2])]
    assert (shown["hidden"], shown["failed_job"], shown["note"]["type"]) == (1, None, "LookupError")
    assert "no such card" not in got.text
    listed = call(app, "GET", "/v1/flows", token="shop", access=access)
    assert [one["id"] for one in listed.json()["flows"]] == [id]
    assert "no such card" not in listed.text
    nodes = call(app, "GET", f"/v1/flows/{id}/nodes", token="shop", access=access).json()["jobs"]
    assert [job["index"] for job in nodes] == [2, 3]


def test_a_result_of_another_queue_is_not_shown(app: App, access: TokenAccess) -> None:
    with app.using(queue="shop").flow("order") as f:
        f.add(app.tasks["charge"].using(queue="bank").call(7))
    app.drain()
    got = call(app, "GET", f"/v1/flows/{f.handle.id}", token="shop", access=access).json()
    assert (got["result"], got["result_omitted"]) == (None, "it is of a queue that this caller may not see")


def test_a_caller_changes_only_flows_all_of_whose_jobs_it_may(
    app: App, access: TokenAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = order(app)
    for act in ("cancel", "retry"):
        assert call(app, "POST", f"/v1/flows/{id}/{act}", token="shop", access=access).status_code == 403
    assert get(app, f"/v1/flows/{id}")["state"] == "running"
    monkeypatch.setattr(flow_graph, "PAGE", 1)
    monkeypatch.setattr(flows, "LOOKED_AT", 2)
    got = call(app, "POST", f"/v1/flows/{id}/cancel", token="both", access=access)
    assert (got.status_code, got.json()["detail"]) == (
        403, "the flow is too large to look at all its jobs: this takes a token for all queues",
    )  # fmt: skip
    assert call(app, "POST", f"/v1/flows/{id}/cancel", token="all", access=access).json()["cancelled"] is True
    monkeypatch.undo()
    assert call(app, "POST", f"/v1/flows/{id}/retry", token="both", access=access).json()["jobs"] == 2
