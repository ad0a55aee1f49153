"""`tarry import celery`: messages that a real Celery put become jobs, each once."""

import base64
import json
import pickle
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarry.cli.importing.broker import CeleryBroker
from tarry.cli.importing.celery_message import MOST, UnreadableMessage, read_message
from tarry.cli.importing.import_celery import ImportOptions, ImportTally, move
from tarry.client.client import Client
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.store.rules.base import Query
from tarry.store.sqlite.store import SqliteStore
from tests.cli.project import Project, until
from tests.servers.redis import RedisServer

CELERY = """
import datetime, sys
from celery import Celery, chain
app = Celery("app", broker=sys.argv[1])
app.conf.update({"broker_transport_options": {"socket_timeout": 10}, **eval(sys.argv[2])})

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
            timeout=250,
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
    kept = {"already_there": 0, "left": [], "taken_meanwhile": 0, "done_twice": [], "dry_run": False}
    assert facts == {"stored": 5, **kept}
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


def test_each_step_of_a_priority_and_a_prefix(project: Project, put: Put, broker: str) -> None:
    steps = {"socket_timeout": 10, "priority_steps": list(range(10)), "global_keyprefix": "shop[1]:"}
    put("for n in range(10): add.apply_async((n,), priority=n, queue='mail')", broker_transport_options=steps)
    assert project.facts("import", "celery", broker)["stored"] == 0
    facts = project.facts("import", "celery", broker, "--key-prefix", "shop[1]:")
    assert facts["stored"] == 10
    found = {msgspec.json.decode(job.body)[0]: job.priority for job in project.jobs()}
    assert found == {n: -n for n in range(10)}


def test_what_is_imported_is_in_the_log_of_acts_and_a_dry_run_is_not(project: Project, put: Put, broker: str) -> None:
    put("add.delay(1)")
    project.said("import", "celery", broker, "--queue", "celery", "--dry-run")
    project.said("import", "celery", broker, "--queue", "celery")
    acts = project.facts("audit")["acts"]
    assert [(act["act"], act["subject"], act["outcome"]) for act in acts] == [("import_celery", "queue=celery", "done")]
    assert broker not in str(acts)


def test_another_broker_is_refused_with_the_way_out(project: Project) -> None:
    said = project.refused("import", "celery", "amqp://guest@localhost//")
    assert "not out of RabbitMQ" in said
    assert "beside tarry's" in said


def test_killed_in_the_middle_nothing_is_lost_and_nothing_stored_twice(project: Project, put: Put, broker: str) -> None:
    put("for n in range(3000): add.delay(n)")
    for least in (1, 1000):
        _kill_once_stored(project, broker, least)
    assert project.said("import", "celery", broker).endswith(("stored", "were there already"))
    assert (len(project.jobs()), waiting(broker)) == (3000, 0)
    assert sorted(body[0] for body in bodies(project)) == list(range(3000))


def _kill_once_stored(project: Project, broker: str, least: int) -> None:
    running = project.command("import", "celery", broker)
    until(lambda: len(project.jobs()) >= least or running.poll() is not None)
    running.kill()
    assert running.wait() == -9, "it had ended before"


def test_of_a_message_that_celery_takes_meanwhile_the_job_is_taken_back(put: Put, broker: str, tmp_path: Path) -> None:
    put("add.delay(1); add.delay(2)")
    client = Client(SqliteStore(tmp_path / "taken.db"), {})
    reader, tally = CeleryBroker(broker), ImportTally()
    with closing(reader), closing(client):
        found = [(place, raw, "celery") for place, raw in reader.messages("celery")]
        assert reader.remove(found[0][0]), "as a worker of Celery's would"
        move(client, reader, found, ImportOptions("", force=True), tally)
        assert (tally.stored, tally.taken, tally.running) == (1, 1, [])
        assert len(client.store.find(Query())) == 1


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
