"""Jobs of flows that other programs take: they get the results of others, and their end goes on with the flow."""

from typing import Any

import pytest

from tarry import App, Flow, FlowFailed, Retry
from tarry.model import lifecycle
from tarry.model.flow.node_ids import node_id
from tarry.model.flow.wiring import split
from tarry.model.job import Job, State
from tarry.model.outcome import Raised, Returned, outcome_note
from tarry.server.claims import Claims
from tests.every_store.conftest import app  # noqa: F401 - each kind of store
from tests.server.beanstalk.serving import serving
from tests.server.http.calling import api
from tests.server.http.calling import run as run_client
from tests.server.taking import LEASE, put, taking, until
from tests.server.test_claims import run


def number(x: int) -> int:
    return x * 10


def declare(app: App) -> None:  # noqa: F811
    for fn in (number, total, both):
        app.task(name=fn.__name__, retry=Retry(0))(fn)


def total(numbers: list[int | None], scale: int = 1) -> int:
    return sum(each or 0 for each in numbers) * scale


def both(a: int | None, b: str) -> str:
    return f"{a}{b}"


def order(app: App, **options: Any) -> Flow[Any]:  # noqa: F811
    """Three numbers by Python, their total by another program, and what Python makes of that."""
    declare(app)
    with app.flow("order", **options) as f:
        group = f.add_all([app.tasks["number"].call(x) for x in range(3)])
        summed = f.add(app.tasks["total"].using(queue="php").call(group.result, scale=2))
        f.add(app.tasks["both"].call(summed.result, "!"))
    app.drain(queues=["default"])
    return f.handle


async def claim(claims: Claims) -> list[Job]:
    return await claims.claim(["php"], limit=5, lease=LEASE, wait=0)


def arguments(job: Job) -> bytes:
    return split(job.id, job.body)[1]


def test_they_get_the_results_and_their_end_releases_what_waits(app: App) -> None:  # noqa: F811
    async def story() -> None:
        flow = order(app)
        async with taking(app) as claims:
            (got,) = await claim(claims)
            assert arguments(got) == b'{"numbers":[0,10,20],"scale":2}'
            assert await claim(claims) == []  # what waits for it is blocked still
            was, change = await claims.settle(got.id, got.epoch, Returned(b"60"))
            assert (was.id, change.to) == (got.id, State.DONE)
        app.drain(queues=["default"])
        assert flow.result(timeout=0) == "60!"

    run(story())


@pytest.mark.parametrize("policy", ["stop", "go_on"])
def test_a_failure_acts_by_the_policy_of_the_node(app: App, policy: Any) -> None:  # noqa: F811
    async def story() -> None:
        flow = order(app, on_failure=policy)
        async with taking(app) as claims:
            (got,) = await claim(claims)
            note = outcome_note("SoapFault", "no")
            await claims.settle(got.id, got.epoch, Raised(note, ("SoapFault",), final=True))
        last = list(flow.nodes())[-1]
        assert last.state == ("blocked" if policy == "stop" else "ready")
        if policy == "stop":
            with pytest.raises(FlowFailed, match=r"node 4 \(total\) is dead: SoapFault: no"):
                flow.result(timeout=0)

    run(story())


def test_whose_results_are_gone_is_given_to_nobody(app: App) -> None:  # noqa: F811
    async def story() -> None:
        flow = order(app)
        second = node_id(bytes.fromhex(flow.id.replace("-", "")), 2)
        store = app.client.store
        (done,) = store.get([second])
        assert done is not None
        assert store.apply([lifecycle.forget(done)], store.time()) == [True]
        async with taking(app) as claims:
            assert await claim(claims) == []
            await until(lambda: flow.state == "dead")
        with pytest.raises(FlowFailed, match="ArgumentError: total: the result of node 2 is gone"):
            flow.result(timeout=0)

    run(story())


def test_what_only_tarry_can_run_is_given_to_nobody(app: App) -> None:  # noqa: F811
    async def story() -> None:
        declare(app)
        flow = app.using(queue="php").map(app.tasks["number"], [1, 2], shards=1)
        async with taking(app) as claims:
            assert await claim(claims) == []
            (part,) = flow.nodes()
            await until(lambda: part.state == "scheduled")
        assert (part.record().failures, part.record().epoch) == (0, 1)

    run(story())


def test_bytes_that_look_like_an_envelope_are_left_alone(app: App) -> None:  # noqa: F811
    async def story() -> None:
        put(app, body=b"\x01\x01\x90[1]")
        async with taking(app) as claims:
            (got,) = await claim(claims)
            assert arguments(got) == b"\x01\x01\x90[1]"

    run(story())


def test_over_http(app: App) -> None:  # noqa: F811
    async def story() -> None:
        flow = order(app)
        async with api(app) as client:
            (got,) = (await client.post("/v1/queues/php/claim", json={})).json()["jobs"]
            assert got["args"] == {"numbers": [0, 10, 20], "scale": 2}
            end = {"epoch": got["epoch"], "result": 60}
            assert (await client.post(f"/v1/jobs/{got['id']}/finish", json=end)).json()["state"] == "done"
            shown = (await client.get(f"/v1/jobs/{got['id']}")).json()
            assert shown["args"] == {"numbers": None, "scale": 2}
        app.drain(queues=["default"])
        assert flow.result(timeout=0) == "60!"

    run_client(story)


def test_a_result_that_stands_for_added_nodes_cannot_be_claimed_from_outside(app: App) -> None:  # noqa: F811
    async def story() -> None:
        flow = order(app)
        async with api(app) as client:
            (got,) = (await client.post("/v1/queues/php/claim", json={})).json()["jobs"]
            body = b'{"epoch":%d,"result": {"tarry-nodes":[1,2,2]}}' % got["epoch"]
            sent = {"content-type": "application/json"}
            answer = await client.post(f"/v1/jobs/{got['id']}/finish", content=body, headers=sent)
            assert answer.json()["state"] == "done"
        assert list(flow.nodes())[3].result(timeout=0) == {"tarry-nodes": [1, 2, 2]}

    run_client(story)


def test_over_beanstalk(app: App) -> None:  # noqa: F811
    flow, buried = order(app), order(app)
    body = b'{"numbers":[0,10,20],"scale":2}'
    with serving(app) as door:
        client = door.client()
        client.ask("watch php\r\n")
        head, _, data = client.ask("reserve-with-timeout 10\r\n").partition(b"\r\n")
        assert data.removesuffix(b"\r\n") == body
        number = head.split()[1].decode()
        assert client.ask(f"peek {number}\r\n").endswith(b'\r\n{"numbers":null,"scale":2}\r\n')
        assert client.ask(f"delete {number}\r\n") == b"DELETED\r\n"
        # By its number, which a peek tells.
        client.ask("use php\r\n")
        number = client.ask("peek-ready\r\n").split()[1].decode()
        assert client.ask(f"reserve-job {number}\r\n").endswith(b"\r\n" + body + b"\r\n")
        assert client.ask(f"bury {number} 1\r\n") == b"BURIED\r\n"
    app.drain(queues=["default"])
    states = sorted([str(flow.state), str(buried.state)])
    assert states == ["dead", "done"]
    done = flow if flow.state == "done" else buried
    assert done.result(timeout=0) == "None!"  # beanstalk's programs return nothing
