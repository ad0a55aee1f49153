"""`tarry import celery`: messages that a real Celery put become jobs, each once."""

import base64
import json
import pickle
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarry.cli.importing.broker import CeleryBroker
from tarry.cli.importing.message import MOST, UnreadableMessage, read_message
from tarry.model.duration import SECOND
from tarry.model.job import State
from tests.cli.project import Project
from tests.servers.redis import RedisServer

CELERY = """
import datetime, sys
from celery import Celery, chain
app = Celery("app", broker=sys.argv[1])
app.conf.update(broker_transport_options={"socket_timeout": 10}, **eval(sys.argv[2]))

@app.task(name="app.add")
def add(a, b=0): ...

@app.task(name="app.nobody")
def nobody(): ...

%s
app.close()
"""
NOW = "datetime.datetime.now(datetime.timezone.utc)"

Put = Callable[..., None]


@pytest.fixture
def broker(redis_server: RedisServer) -> Iterator[str]:
    redis_server.empty()
    yield redis_server.url
    redis_server.empty()


@pytest.fixture
def put(broker: str, tmp_path: Path) -> Put:
    """Runs lines with a real Celery whose tasks are `add` and `nobody`."""

    def run(lines: str, **conf: Any) -> None:
        script = tmp_path / "producer.py"
        script.write_text(CELERY % lines)
        ran = subprocess.run(
            [sys.executable, str(script), broker, repr(conf)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
        )
        assert ran.returncode == 0, ran.stderr

    return run


def waiting(url: str) -> int:
    found = CeleryBroker(url)
    try:
        return sum(map(found.size, found.queues()))
    finally:
        found.close()


def bodies(project: Project) -> list[Any]:
    return sorted((msgspec.json.decode(job.body) for job in project.jobs()), key=str)


@pytest.mark.parametrize("protocol", [1, 2])
def test_calls_become_jobs_and_leave_the_broker(project: Project, put: Put, broker: str, protocol: int) -> None:
    put(
        f"""
for n in range(3): add.delay(n, b=n)
add.apply_async((7,), countdown=3600, expires={NOW} + datetime.timedelta(hours=2), retries=2)
add.apply_async((8,), queue="other", priority=9)
""",
        task_protocol=protocol,
    )
    facts = project.facts("import", "celery", broker)
    assert facts == {"stored": 5, "already_there": 0, "left": [], "dry_run": False}
    assert waiting(broker) == 0
    jobs = {str(msgspec.json.decode(job.body)): job for job in project.jobs()}
    assert len(jobs) == 5
    later, other = jobs["[7]"], jobs["[8]"]
    assert (later.queue, later.state, later.failures) == ("celery", State.SCHEDULED, 2)
    assert later.expires - later.due == pytest.approx(3600 * SECOND, abs=60 * SECOND)
    assert (other.queue, other.priority, other.state) == ("other", -9, State.READY)


def test_a_second_run_stores_nothing_twice(project: Project, put: Put, broker: str, redis_server: RedisServer) -> None:
    put("for n in range(3): add.delay(n)")
    kept = redis_server.call("LRANGE", "celery", "0", "-1").splitlines()
    project.tarry("import", "celery", broker)
    for raw in kept:  # as after a crash between the store and the removal
        redis_server.call("RPUSH", "celery", raw)
    facts = project.facts("import", "celery", broker)
    assert (facts["stored"], facts["already_there"]) == (0, 3)
    assert (len(project.jobs()), waiting(broker)) == (3, 0)


def test_a_dry_run_changes_nothing(project: Project, put: Put, broker: str) -> None:
    put("add.delay(1); add.delay(2)")
    assert "2 would be stored" in project.said("import", "celery", broker, "--dry-run")
    assert (waiting(broker), project.jobs()) == (2, [])


def test_one_queue(project: Project, put: Put, broker: str) -> None:
    put("add.delay(1); add.apply_async((2,), queue='other')")
    project.said("import", "celery", broker, "--queue", "other")
    assert (bodies(project), waiting(broker)) == ([[2]], 1)


def test_what_cannot_be_taken_stays_and_is_listed(project: Project, put: Put, broker: str) -> None:
    put("add.delay(1); nobody.delay(); chain(add.s(1), add.s(2)).delay(); add.delay('x')")
    put("add.delay(2)", task_serializer="pickle", accept_content=["pickle"])
    ended = project.tarry("import", "celery", broker)
    assert ended.status == 1
    for why in ("no task app.nobody", "has a chain", "never pickle", "app.add: argument a"):
        assert why in ended.out
    assert (bodies(project), waiting(broker)) == ([[1]], 4)
    facts = msgspec.json.decode(project.tarry("import", "celery", broker, "--force", "--json").out)
    assert (facts["stored"], len(facts["left"])) == (1, 3)


def test_many_among_those_that_stay(project: Project, put: Put, broker: str) -> None:
    put("for n in range(1200): (nobody.delay() if n % 3 == 0 else add.delay(n))")
    facts = msgspec.json.decode(project.tarry("import", "celery", broker, "--json").out)
    assert (facts["stored"], len(facts["left"]), waiting(broker)) == (800, 400, 400)


def test_unacknowledged_messages_by_option(project: Project, put: Put, broker: str, redis_server: RedisServer) -> None:
    put(
        """
add.delay(5)
with app.connection_for_read() as c:
    assert c.default_channel.basic_get("celery") is not None
    import os; os._exit(0)
"""
    )
    assert redis_server.call("HLEN", "unacked") == "1"
    assert project.facts("import", "celery", broker)["stored"] == 0
    assert project.facts("import", "celery", broker, "--unacked")["stored"] == 1
    assert (redis_server.call("HLEN", "unacked"), redis_server.call("ZCARD", "unacked_index")) == ("0", "0")


def test_a_body_that_is_packed(project: Project, put: Put, broker: str) -> None:
    put("add.apply_async((3,), compression='gzip'); add.apply_async((4,), compression='zlib')")
    project.said("import", "celery", broker)
    assert bodies(project) == [[3], [4]]


def envelope(body: bytes, **more: Any) -> bytes:
    whole = {
        "body": base64.b64encode(body).decode(),
        "content-type": "application/json",
        "headers": {"task": "app.add", "id": "x"},
        "properties": {"body_encoding": "base64"},
        **more,
    }
    return json.dumps(whole).encode()


class Bomb:
    def __reduce__(self) -> Any:
        return pytest.fail, ("pickle was loaded",)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no json",
        b"[]",
        envelope(b"[]"),
        envelope(b"[1, 2, 3]"),
        envelope(b"[[], {}]"),
        envelope(b"\xff"),
        envelope(pickle.dumps(Bomb()), **{"content-type": "application/x-python-serialize"}),
        envelope(pickle.dumps(Bomb())),
        envelope(b"[[], {}, {}]", headers={"task": "app.add"}),
        envelope(b"[[], {}, {}]", headers={"task": "app.add", "id": "x", "eta": "soon"}),
        envelope(b"[[], {}, {}]", headers={"task": "app.add", "id": "x", "retries": -1}),
        envelope(b"[[], {}, {}]", headers={"task": "app.add", "id": "x", "compression": "application/x-bz2"}),
        envelope(
            zlib.compress(b" " * (MOST + 1)),
            headers={"task": "app.add", "id": "x", "compression": "application/x-gzip"},
        ),
    ],
)
def test_a_message_that_cannot_be_read_is_said_so(raw: bytes) -> None:
    with pytest.raises(UnreadableMessage):
        read_message(raw)
